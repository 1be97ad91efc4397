//! Chart and program of one version.

use std::path::{Path, PathBuf};

use super::tidegate::program;

/// Where `./dev upgrade` says that the version before is.
const PREVIOUS: &str = "TIDEGATE_PREVIOUS";

/// What an installation is made from.
#[derive(Clone, Debug)]
pub struct Build {
    /// Folder of the chart.
    pub chart: PathBuf,
    /// The program.
    pub program: PathBuf,
}

impl Build {
    /// The one under test.
    pub fn present() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { chart: root.join("charts/tidegate"), program: program() }
    }

    /// The one that people upgrade from, where there is one; else the one under test.
    pub fn previous() -> Self {
        std::env::var_os(PREVIOUS).map_or_else(Self::present, |folder| {
            let folder = PathBuf::from(folder);
            Self { chart: folder.join("charts/tidegate"), program: folder.join("tidegate") }
        })
    }
}
