//! Logs on standard error: event name first, ids as fields.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. `filter` is a `tracing` directive such as `info` or
/// `tidegate::control=debug,info`; a filter that makes no sense means `info`.
///
/// Level policy: `error` a person must act, `warn` something was refused or
/// lost, `info` the process changed state, `debug` each decision and write.
/// Nothing is logged at `info` for each pod.
pub fn init(filter: &str, format: LogFormat) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
