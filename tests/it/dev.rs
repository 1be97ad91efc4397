//! The entry script tells what it can do, and what a wait will be, before it builds anything.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::support::{cluster::Cluster, helper};

const COLD: &str = "A first run builds";

/// A machine with nothing but a shell's own tools, and a cache of its own.
struct Machine {
    dir: PathBuf,
}

impl Machine {
    fn new(name: &str) -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("tidegate-dev-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("bin"))?;
        for tool in ["bash", "cat", "dirname", "head", "readlink", "sed", "sort"] {
            let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool));
            let found = places.iter().find(|path| path.exists()).context(tool)?;
            symlink(found, dir.join("bin").join(tool))?;
        }
        Ok(Self { dir })
    }

    fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    fn target(&self) -> PathBuf {
        self.dir.join("target")
    }

    fn dev(&self, args: &[&str]) -> Result<Output> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(self.dir.join("bin/bash"));
        command.arg(root.join("dev")).args(args).env_clear().env("PATH", self.dir.join("bin"));
        command.env("TIDEGATE_CACHE", self.cache()).env("CARGO_TARGET_DIR", self.target());
        command.output().context("running ./dev")
    }

    /// What it prints; it has to end well.
    fn told(&self, args: &[&str]) -> Result<String> {
        let output = self.dev(args)?;
        ensure!(output.status.success(), "{args:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_and_lists_of_names_need_no_toolchain_and_build_nothing() -> Result<()> {
    let machine = Machine::new("help")?;
    for (args, word) in [
        (&[][..], "cluster up|down|status"),
        (&["demo", "--help"], "--keep"),
        (&["test", "--help"], "./dev test --lib"),
        (&["soak", "--help"], "--minutes N"),
        (&["bench"], "admission"),
        (&["bench", "engine", "--help"], "--json"),
        (&["bin"], "mpi-operator"),
        (&["cluster", "up", "--help"], "--nodes N"),
        (&["image", "--help"], "NAME:TAG"),
        (&["upgrade", "--help"], "[REV]"),
        (&["oracle", "--help"], "--write"),
        (&["cluster", "down"], ""),
    ] {
        let told = machine.told(args)?;
        ensure!(told.contains(word) && !told.contains(COLD), "{args:?}: {told}");
    }
    let output = machine.dev(&["cluster", "status"])?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(text(&output.stderr).contains("start one with ./dev cluster up"), "{output:?}");
    ensure!(!machine.cache().exists(), "something was built");
    Ok(())
}

#[test]
fn the_cost_of_a_cold_machine_is_the_first_line_and_only_there() -> Result<()> {
    let machine = Machine::new("cold")?;
    let first = |command: &str| -> Result<String> {
        let output = machine.dev(&[command])?;
        // Without toolchains it ends there.
        ensure!(text(&output.stderr).contains("missing on this machine"), "{output:?}");
        Ok(text(&output.stdout).lines().next().unwrap_or_default().to_owned())
    };
    for command in ["test", "demo"] {
        ensure!(first(command)?.starts_with(COLD), "{command}");
    }
    fs::create_dir_all(machine.target().join("debug"))?;
    fs::create_dir_all(machine.cache().join("bin"))?;
    for name in ["cluster", "mpi-operator", "kuberay", "jobset", "dask", "kubectl"] {
        ensure!(first("test")?.starts_with(COLD), "{name} was not missed");
        fs::write(machine.cache().join(format!("bin/{name}-0123456789abcdef.ok")), "")?;
    }
    for command in ["test", "demo"] {
        ensure!(first(command)?.starts_with("Builds what changed"), "{command}");
    }
    Ok(())
}

#[test]
fn a_local_cluster_that_runs_is_shown_and_not_started_twice() -> Result<()> {
    let (machine, cluster) = (Machine::new("runs")?, Cluster::bare()?);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    fs::create_dir_all(machine.cache())?;
    symlink(cluster.dir().parent().context("no parent")?, machine.cache().join("local"))?;

    let table = machine.told(&["cluster", "status"])?;
    ensure!(table.starts_with("CLUSTER ") && table.contains(&kubeconfig), "{table}");
    let json: Value = serde_json::from_str(&machine.told(&["cluster", "status", "-o", "json"])?)?;
    ensure!(json["clusters"][0]["kubeconfig"] == kubeconfig.as_str(), "{json:#}");

    let up = machine.dev(&["cluster", "up"])?;
    ensure!(up.status.code() == Some(1), "{up:?}");
    ensure!(text(&up.stdout).contains("export KUBECONFIG="), "{up:?}");
    ensure!(text(&up.stderr).contains("./dev cluster down"), "{up:?}");
    Ok(())
}

#[test]
fn help_names_every_flag_of_a_cluster_and_every_benchmark() -> Result<()> {
    let machine = Machine::new("names")?;
    let told = machine.told(&["cluster", "up", "--help"])?;
    let flags = Command::new(helper("cluster")?).args(["up", "--help"]).output()?;
    ensure!(flags.status.success(), "{flags:?}");
    let flags = text(&flags.stderr);
    let names = flags.lines().filter_map(|line| line.strip_prefix("  -")?.split(' ').next());
    // The script's own.
    let names: Vec<&str> =
        names.filter(|name| !["dir", "remove-dir", "until-stdin-closes"].contains(name)).collect();
    ensure!(names.len() > 5, "{flags}");
    for name in names {
        ensure!(told.contains(&format!("--{name}")), "{name} is not in: {told}");
    }

    let told = machine.told(&["bench"])?;
    let source = include_str!("../../benches/main.rs");
    let (_, names) = source.split_once("enum Name {").context("no names")?;
    let (names, _) = names.split_once('}').context("no end")?;
    for name in names.lines().filter_map(|line| line.trim().strip_suffix(',')) {
        ensure!(told.contains(&format!("\n  {} ", name.to_lowercase())), "{name}: {told}");
    }
    Ok(())
}
