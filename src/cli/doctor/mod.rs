//! `tidegate doctor`: whether an installation is whole, and what to do where it is not.
//!
//! *In:* the user's kubeconfig and the namespace of the installation. *Out:* a finding for
//! each check. Reads only: what would be created is created dry. What may not be looked at is
//! a warning that names the refusal, never a guess.

mod certificates;
mod compare;
mod finding;
mod installed;
mod programs;
mod rights;
mod trials;
mod version;
mod work;

use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, join_all};
use kube::{Client, Error};
use serde_json::Value;

use super::output::Printed;
use super::{Connect, Failure, Home};
use finding::{Finding, Report};

/// How long one check may take: a hanging apiserver or webhook is a finding too.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// Which installation to check.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    home: Home,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connect: Connect,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// As one JSON object.
    Json,
}

/// Checks everything and says how it is; fails when something does not work.
pub async fn doctor(args: &Doctor) -> Result<Printed, Failure> {
    let client = args.connect.client().await?;
    let report = examine(&Site { client, namespace: args.home.namespace.clone() }).await?;
    let out = match args.output {
        Form::Text => report.text(),
        Form::Json => report.json()?,
    };
    Ok(Printed { out, failed: !report.healthy, ..Printed::default() })
}

/// What is examined.
pub(super) struct Site {
    /// Who asks.
    pub client: Client,
    /// Where it is installed.
    pub namespace: String,
}

async fn examine(site: &Site) -> Result<Report, Failure> {
    let version = site.client.apiserver_version().await;
    let version = version.map_err(|error| super::read::unreachable(&error))?;
    let installation = installed::read(site).await;
    let mut findings = vec![version::cluster(&version, installation.gate())];
    findings.extend(installation.findings(site));
    let own_certificates = installation.own_certificates();
    let checks = [
        within("certificates", certificates::check(site, &installation).boxed_local()),
        within("rights", rights::check(site, own_certificates).boxed_local()),
        within("programs", programs::check(site).boxed_local()),
        within("clock", programs::clock(site).boxed_local()),
        within("queue webhook", trials::queue(site).boxed_local()),
        within("gating", trials::pod(site).boxed_local()),
    ];
    let (found, (answers, visible)) = tokio::join!(join_all(checks), trials::visibility(site));
    findings.extend(found.into_iter().flatten());
    findings.push(visible);
    findings.extend(within("work", work::check(site, answers).boxed_local()).await);
    Ok(Report::new(findings))
}

/// A check's findings, or that it hangs.
async fn within(check: &'static str, findings: LocalBoxFuture<'_, Vec<Finding>>) -> Vec<Finding> {
    tokio::time::timeout(CHECK_TIMEOUT, findings).await.unwrap_or_else(|_| {
        let seconds = CHECK_TIMEOUT.as_secs();
        let remedy =
            "see whether the apiserver and what it calls answer: kubectl get --raw /readyz";
        vec![Finding::fail(check, format!("no answer within {seconds} s"), remedy)]
    })
}

/// What an error says about `what`: a refusal is no fault of the installation.
fn unreadable(check: &'static str, what: &str, error: &Error) -> Finding {
    match error {
        Error::Api(status) if status.code == 403 => Finding::warn(
            check,
            format!("{what} may not be looked at: {}", status.message),
            "ask again as an administrator",
        ),
        Error::Api(status) => {
            let remedy = "see what the apiserver says of it";
            Finding::fail(check, format!("{what} cannot be read: {}", status.message), remedy)
        }
        other => {
            let remedy = "see whether the apiserver answers";
            Finding::fail(check, format!("{what} cannot be read: {other}"), remedy)
        }
    }
}

/// The text at a JSON pointer, or nothing.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
