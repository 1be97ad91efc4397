mod bench;
mod cases;
