//! Reaching the cluster as the user would with kubectl.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::Failure;

/// Which cluster, and as whom.
#[derive(Clone, Debug, Default, Args)]
pub struct Connect {
    /// Kubeconfig file; else $KUBECONFIG, ~/.kube/config, or the pod's own account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; else its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl Connect {
    /// A client whose default namespace is the context's.
    pub async fn client(&self) -> Result<Client, Failure> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        // A person is waiting, and an error says more than a silence.
        config.default_retry = false;
        Client::try_from(config).map_err(|error| no_cluster(&error))
    }

    /// The configuration of a client, as kubectl would have it.
    pub async fn config(&self) -> Result<Config, Failure> {
        let options =
            KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match (&self.kubeconfig, &self.context) {
            (Some(file), _) => {
                let kubeconfig = Kubeconfig::read_from(file).map_err(|error| no_cluster(&error))?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options);
                config.await.map_err(|error| no_cluster(&error))
            }
            (None, Some(_)) => {
                let config = Config::from_kubeconfig(&options);
                config.await.map_err(|error| no_cluster(&error))
            }
            (None, None) => Config::infer().await.map_err(|error| no_cluster(&error)),
        }
    }
}

fn no_cluster(error: &dyn std::error::Error) -> Failure {
    Failure::Error(format!(
        "no cluster to ask: {error}\nSet KUBECONFIG or use --kubeconfig and --context."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let file = Some(PathBuf::from("/nowhere/config"));
        let connect = Connect { kubeconfig: file, context: None };
        let failure = connect.client().await.err().unwrap();
        assert!(failure.to_string().contains("/nowhere/config"), "{failure}");
    }
}
