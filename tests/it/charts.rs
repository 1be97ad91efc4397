//! The chart renders the same each time, and nothing that is not its own.

use std::process::{Command, Output};

use anyhow::{Result, ensure};

use crate::support::helper;

fn template(arguments: &[&str]) -> Result<Output> {
    let home = std::env::temp_dir().join("tidegate-helm-home");
    Ok(Command::new(helper("helm")?)
        .args(["template", "tidegate", "charts/tidegate", "--namespace", "tidegate-system"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("HOME", &home)
        .env("HELM_CACHE_HOME", home.join("cache"))
        .env("HELM_CONFIG_HOME", home.join("config"))
        .env("HELM_DATA_HOME", home.join("data"))
        .output()?)
}

fn rendered(arguments: &[&str]) -> Result<String> {
    let output = template(arguments)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn refused(arguments: &[&str]) -> Result<String> {
    let output = template(arguments)?;
    ensure!(!output.status.success(), "it rendered");
    Ok(String::from_utf8(output.stderr)?)
}

const POLICY: &[&str] = &["--kube-version=1.36.0", "--set=admission.gateBy=policy"];
const CERT_MANAGER: &[&str] =
    &["--set=certManager.enabled=true", "--set=certManager.issuerRef.name=ours"];

#[test]
fn two_renderings_are_the_same_bytes_and_own_no_bundle() -> Result<()> {
    for arguments in [&[][..], POLICY, CERT_MANAGER] {
        let once = rendered(arguments)?;
        assert_eq!(once, rendered(arguments)?);
        assert!(!once.contains("caBundle"));
    }
    Ok(())
}

#[test]
fn one_of_webhook_and_policy_adds_the_gate_and_the_guard_is_always_there() -> Result<()> {
    let (webhook, policy) = (rendered(&[])?, rendered(POLICY)?);
    for text in [&webhook, &policy] {
        assert!(text.contains("name: guard-pods.tidegate.dev"));
        assert!(text.contains("kind: ValidatingWebhookConfiguration"));
    }
    assert!(webhook.contains("kind: MutatingWebhookConfiguration"));
    assert!(!webhook.contains("kind: MutatingAdmissionPolicy"));
    assert!(policy.contains("kind: MutatingAdmissionPolicy"));
    assert!(!policy.contains("kind: MutatingWebhookConfiguration"));
    Ok(())
}

#[test]
fn a_policy_that_gates_leaves_holding_back_to_a_webhook_that_nobody_waits_for() -> Result<()> {
    let hold = "name: hold-pods.tidegate.dev";
    let (webhook, policy) = (rendered(&[])?, rendered(POLICY)?);
    assert!(!webhook.contains(hold) && policy.contains(hold));
    assert_eq!(policy.matches("failurePolicy: Ignore").count(), 2, "and namespaces");
    let without = [POLICY, &["--set=admission.maxPending=false"]].concat();
    let without = rendered(&without)?;
    assert!(!without.contains(hold) && without.contains("name: check-queues.tidegate.dev"));
    Ok(())
}

#[test]
fn with_cert_manager_the_controller_may_write_neither_secret_nor_bundle() -> Result<()> {
    let keep = "--set=onUninstall=keep";
    let (own, theirs) = (rendered(&[keep])?, rendered(&[CERT_MANAGER, &[keep]].concat())?);
    for right in ["resources: [secrets]", "resources: [apiservices]"] {
        assert!(own.contains(right) && !theirs.contains(right), "{right}");
    }
    assert_eq!(theirs.matches("cert-manager.io/inject-ca-from").count(), 3);
    Ok(())
}

#[test]
fn rights_to_uninstall_exist_only_while_it_does_and_only_to_let_go() -> Result<()> {
    let hooks = |text: &str| text.matches("helm.sh/hook: pre-delete").count();
    let (release, keep) = (rendered(&[])?, rendered(&["--set=onUninstall=keep"])?);
    assert_eq!(hooks(&release), 6);
    assert_eq!(release.matches("name: tidegate-uninstall").count(), 10);
    assert!(!keep.contains("tidegate-uninstall"));
    let theirs = rendered(CERT_MANAGER)?;
    assert!(theirs.contains("--tls-secret="), "its Secret is not ours to delete");
    Ok(())
}

#[test]
fn exempt_accounts_reach_webhook_and_policies() -> Result<()> {
    let account = "system:serviceaccount:velero:velero";
    let text = rendered(&[&format!("--set=admission.exemptAccounts={{{account}}}")])?;
    assert!(text.contains(&format!("--exempt-account={account}")));
    assert!(text.contains(&format!("'{account}'")));
    Ok(())
}

#[test]
fn a_digest_names_the_image_in_place_of_the_tag() -> Result<()> {
    let digest = format!("sha256:{}", "0123".repeat(16));
    let text = rendered(&[&format!("--set=image.digest={digest}"), "--set=image.tag=v9"])?;
    assert_eq!(text.matches(&format!("image: \"tidegate/tidegate@{digest}\"")).count(), 3);
    assert!(rendered(&["--set=image.tag=v9"])?.contains("image: \"tidegate/tidegate:v9\""));
    Ok(())
}

#[test]
fn a_record_is_written_to_the_volume_that_the_values_name() -> Result<()> {
    assert!(!rendered(&[])?.contains("--record"));
    let own = rendered(&["--set=controller.record.enabled=true"])?;
    for part in ["--record=/var/lib/tidegate", "--record-limit=128", "emptyDir:", "name: record"] {
        assert!(own.contains(part), "{part} in {own}");
    }
    let claim = "--set=controller.record.volume.persistentVolumeClaim.claimName=records";
    let theirs = [CERT_MANAGER, &["--set=controller.record.enabled=true", claim]].concat();
    let theirs =
        rendered(&[&theirs[..], &["--set=controller.record.volume.emptyDir=null"]].concat())?;
    assert!(theirs.contains("claimName: records") && !theirs.contains("emptyDir"), "{theirs}");
    assert!(theirs.contains("mountPath: /etc/tidegate/tls"), "{theirs}");
    Ok(())
}

#[test]
fn values_that_make_no_sense_are_refused() -> Result<()> {
    for (argument, reason) in [
        ("--set=admission.exemptAccounts={x'y@z}", "exemptAccounts"),
        ("--set=admission.exemptAccounts={velero}", "exemptAccounts"),
        ("--set=admission.exemptAccounts={system:serviceaccount:velero}", "exemptAccounts"),
        ("--set=admission.gateBy=nobody", "gateBy"),
        ("--set=certManager.enabled=true", "issuerRef"),
        ("--set=webhook.replica=2", "replica"),
        ("--set=image.digest=0123", "digest"),
    ] {
        let text = refused(&[argument])?;
        assert!(text.contains(reason), "{text}");
    }
    let text = refused(&["--kube-version=1.35.0", "--set=admission.gateBy=policy"])?;
    assert!(text.contains("needs Kubernetes 1.36"), "{text}");
    Ok(())
}
