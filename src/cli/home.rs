//! Which installation of Tidegate.

use clap::Args;

use crate::manifests::Values;

/// Where Tidegate is installed.
#[derive(Clone, Debug, Args)]
pub struct Home {
    /// Namespace that Tidegate is installed in.
    #[arg(
        short,
        long,
        value_name = "NAME",
        default_value = "tidegate-system",
        value_parser = Values::namespace
    )]
    pub namespace: String,
}
