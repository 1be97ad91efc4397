module tidegate.dev/tests/peers/yunikorn

go 1.26

require github.com/apache/yunikorn-core v1.8.0
