//! What tests stand on: a real control plane, real operators, Tidegate as its chart installs it.

#![allow(dead_code, reason = "not every binary that includes this uses all of it")]

pub mod audit;
pub mod balancer;
pub mod build;
pub mod cluster;
pub mod lab;
pub mod made_up;
pub mod operators;
pub mod process;
pub mod proxy;
pub mod record;
pub mod replicas;
pub mod storm;
pub mod tidegate;
pub mod tls;
pub mod wait;
pub mod webhooks;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// The path of a helper program, built when its sources are new.
pub fn helper(name: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(root.join("dev"))
        .args(["bin", name])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running ./dev bin {name}"))?;
    ensure!(done.status.success(), "./dev bin {name} ended with {}", done.status);
    Ok(PathBuf::from(String::from_utf8(done.stdout)?.trim()))
}
