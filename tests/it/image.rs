//! The image holds what it says, runs where there is nothing else, and is the same each time.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::support::tidegate::program;

const NOBODY: &str = "65532:65532";

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Writes an image; its digest.
fn image(program: &Path, file: &Path) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/image.py");
    run(Command::new("python3").arg(script).args([program, file]).arg("example.com/ours:7"))
}

fn unpack(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into)).map(drop)
}

fn json(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The file that a descriptor names; its size and digest have to be right.
fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf> {
    let digest = descriptor["digest"].as_str().context("no digest")?;
    let hash = digest.strip_prefix("sha256:").context("another hash")?;
    let path = layout.join("blobs/sha256").join(hash);
    ensure!(descriptor["size"] == fs::metadata(&path)?.len(), "{descriptor}");
    let sum = run(Command::new("sha256sum").arg(&path))?;
    ensure!(sum.starts_with(hash), "{sum} is not {hash}");
    Ok(path)
}

/// A program with a folder as its whole world, as nobody.
fn alone(root: &Path, program: &str) -> Result<Command> {
    let mut command;
    if run(Command::new("id").arg("-u"))? == "0" {
        command = Command::new("chroot");
        command.arg(format!("--userspec={NOBODY}")).arg(root);
    } else {
        command = Command::new("unshare");
        command.arg("--map-user=65532").arg("--root").arg(root);
    }
    command.arg(program).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Ok(command)
}

#[test]
fn an_image_is_whole_and_runs_as_nobody_with_nothing_else_there() -> Result<()> {
    let folder = Folder::new("image")?;
    let (archive, layout, root) =
        (folder.0.join("image.tar"), folder.0.join("layout"), folder.0.join("root"));
    let digest = image(&program(), &archive)?;
    unpack(&archive, &layout)?;

    let index = json(&layout.join("index.json"))?;
    let described = &index["manifests"][0];
    ensure!(described["digest"] == digest.as_str(), "{index:#} is not {digest}");
    ensure!(described["annotations"]["io.containerd.image.name"] == "example.com/ours:7");
    let manifest = json(&blob(&layout, described)?)?;
    let config = json(&blob(&layout, &manifest["config"])?)?;
    ensure!(config["config"]["User"] == NOBODY, "{config:#}");
    ensure!(config["config"]["Entrypoint"][0] == "/tidegate", "{config:#}");

    let layer = blob(&layout, &manifest["layers"][0])?;
    unpack(&layer, &root)?;
    let plain = run(Command::new("sh").arg("-c").arg("gzip -dc \"$0\" | sha256sum").arg(&layer))?;
    let unpacked = config["rootfs"]["diff_ids"][0].as_str().context("no diff_id")?;
    ensure!(unpacked.ends_with(plain.split(' ').next().context("no sum")?), "{config:#}");

    let version = run(alone(&root, "/tidegate")?.arg("--version"))?;
    ensure!(version == format!("tidegate {}", env!("CARGO_PKG_VERSION")), "{version}");
    let files = run(Command::new("find").arg(&root).args(["-type", "f", "-printf", "%P\n"]))?;
    let others = files.lines().filter(|file| *file != "tidegate" && !file.contains(".so"));
    ensure!(others.count() == 0, "{files}");
    Ok(())
}

#[test]
fn two_images_of_one_program_are_the_same_bytes() -> Result<()> {
    let folder = Folder::new("same-image")?;
    let (one, two) = (folder.0.join("one.tar"), folder.0.join("two.tar"));
    let small = Path::new("/bin/cat");
    ensure!(image(small, &one)? == image(small, &two)?);
    ensure!(fs::read(&one)? == fs::read(&two)?);
    Ok(())
}
