//! What must be there before a program starts, so that a person is told once what to do
//! instead of reading the same refusal every second.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::api::v1alpha1::Queue;

use super::super::Failure;

/// How long a definition that was just applied may take to be served.
const GRACE: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// A directory that somebody else fills: it may be empty still, but not missing.
///
/// # Errors
/// [`Failure::Usage`] when there is no such directory.
pub fn directory(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--cert-dir: there is no directory {}; it is where tls.crt and tls.key are kept",
        path.display()
    )))
}

/// Looks whether our kind and, when one is named, the namespace of our Secret are there.
/// Only a clear "there is none" counts: an apiserver that cannot be reached yet, or refuses
/// this account, is waited for where it is needed.
///
/// # Errors
/// [`Failure::Error`] that names all that is missing and how to install it.
pub async fn installed(client: &Client, namespace: Option<&str>) -> Result<(), Failure> {
    let mut missing = Vec::new();
    if kind_is_missing(client).await {
        missing.push(KIND.to_owned());
    }
    if let Some(namespace) = namespace
        && namespace_is_missing(client, namespace).await
    {
        missing.push(home(namespace));
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::Error(advice(&missing))) }
}

async fn kind_is_missing(client: &Client) -> bool {
    let queues = Api::<Queue>::all(client.clone());
    let one = ListParams::default().limit(1);
    let end = Instant::now() + GRACE;
    loop {
        let missing = is_missing(queues.list(&one).await);
        if !missing || Instant::now() > end {
            return missing;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Asked by a list, which our accounts may do anyway.
async fn namespace_is_missing(client: &Client, name: &str) -> bool {
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = Api::<Namespace>::all(client.clone()).list(&named).await;
    found.is_ok_and(|found| found.items.is_empty())
}

fn is_missing<T>(answer: Result<T, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 404)
}

const KIND: &str = "The kind Queue is not there: tidegate crds | kubectl apply --server-side -f -";

fn home(namespace: &str) -> String {
    format!(
        "The namespace {namespace}, which certificates are kept in, is not there: \
         kubectl create namespace {namespace}"
    )
}

fn advice(missing: &[String]) -> String {
    format!(
        "Tidegate is not installed on this cluster.\n  {}\n\
         Or install all of it: helm install tidegate charts/tidegate -n tidegate-system --create-namespace",
        missing.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_wrong_usage_and_an_empty_one_is_not() {
        let failure = directory(Path::new("/nowhere/tls")).err();
        assert!(matches!(&failure, Some(Failure::Usage(text)) if text.contains("/nowhere/tls")));
        assert_eq!(directory(&std::env::temp_dir()), Ok(()));
    }

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        insta::assert_snapshot!(advice(&[KIND.to_owned(), home("here")]), @"
        Tidegate is not installed on this cluster.
          The kind Queue is not there: tidegate crds | kubectl apply --server-side -f -
          The namespace here, which certificates are kept in, is not there: kubectl create namespace here
        Or install all of it: helm install tidegate charts/tidegate -n tidegate-system --create-namespace
        ");
    }
}
