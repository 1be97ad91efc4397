//! Certificates that somebody mounts: our own Secret or cert-manager's.
//!
//! Read by content, not by file events: a kubelet swaps a symbolic link above the
//! files, which many watches never notice.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Error, Resolver};

/// How often the files are read: they are small, and until they have been nobody is served.
const PERIOD: Duration = Duration::from_secs(1);

/// Keeps a resolver at `tls.crt` and `tls.key` of a directory, until cancelled. A
/// pair that is missing or bad is logged and the last good one stays.
pub async fn follow(directory: PathBuf, resolver: Arc<Resolver>, stop: CancellationToken) {
    let mut last_problem = None;
    loop {
        let outcome = load(&directory, &resolver).await;
        let problem = outcome.as_ref().err().map(ToString::to_string);
        if matches!(outcome, Ok(true)) {
            info!(directory = %directory.display(), "certificate loaded");
        }
        if let Some(problem) = problem.as_ref().filter(|_| problem != last_problem) {
            warn!(directory = %directory.display(), problem, "certificate not loaded");
        }
        last_problem = problem;
        if stop.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

/// Reads the files once. Tells whether the resolver changed.
pub async fn load(directory: &Path, resolver: &Resolver) -> Result<bool, Error> {
    let chain = tokio::fs::read(directory.join("tls.crt")).await?;
    let key = tokio::fs::read(directory.join("tls.key")).await?;
    resolver.set(&chain, &key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::{Authority, Names};
    use jiff::Timestamp;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Lays files out as a kubelet does: `..data` points to a dated directory.
    fn publish(volume: &Path, generation: &str, crt: &str, key: &str) {
        let dated = volume.join(generation);
        fs::create_dir(&dated).unwrap();
        fs::write(dated.join("tls.crt"), crt).unwrap();
        fs::write(dated.join("tls.key"), key).unwrap();
        symlink(generation, volume.join("..tmp")).unwrap();
        fs::rename(volume.join("..tmp"), volume.join("..data")).unwrap();
        for file in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{file}"), volume.join(file)).ok();
        }
    }

    fn volume(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[tokio::test]
    async fn a_swapped_volume_is_seen_and_a_bad_pair_is_not_taken() {
        let names = Names::of_services("ns", &["s"], &[]);
        let first = Authority::issue(&names, Timestamp::UNIX_EPOCH).unwrap();
        let second = first.with_new_leaf(&names, Timestamp::UNIX_EPOCH).unwrap();
        let volume = volume("swap");
        let resolver = Resolver::default();
        assert!(matches!(load(&volume, &resolver).await, Err(Error::Files(_))));
        publish(&volume, "1", &first.tls_crt, &first.tls_key);
        assert!(load(&volume, &resolver).await.unwrap());
        assert!(!load(&volume, &resolver).await.unwrap());
        publish(&volume, "2", &second.tls_crt, &first.tls_key);
        assert!(matches!(load(&volume, &resolver).await, Err(Error::Unusable(_))));
        publish(&volume, "3", &second.tls_crt, &second.tls_key);
        assert!(load(&volume, &resolver).await.unwrap());
        fs::remove_dir_all(&volume).unwrap();
    }

    #[tokio::test]
    async fn files_that_come_late_are_found() {
        let names = Names::of_services("ns", &["s"], &[]);
        let authority = Authority::issue(&names, Timestamp::UNIX_EPOCH).unwrap();
        let volume = volume("late");
        let (resolver, stop) = (Arc::new(Resolver::default()), CancellationToken::new());
        let task = tokio::spawn(follow(volume.clone(), resolver.clone(), stop.clone()));
        tokio::task::yield_now().await;
        assert!(!resolver.is_loaded());
        publish(&volume, "1", &authority.tls_crt, &authority.tls_key);
        let loaded = async {
            while !resolver.is_loaded() {
                tokio::time::sleep(PERIOD / 100).await;
            }
        };
        tokio::time::timeout(PERIOD * 10, loaded).await.unwrap();
        stop.cancel();
        task.await.unwrap();
        fs::remove_dir_all(&volume).unwrap();
    }
}
