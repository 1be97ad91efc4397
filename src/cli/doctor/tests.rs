//! The whole of it against clusters that answer little.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use serde_json::json;
use tower::service_fn;

use super::finding::{Finding, Report, Verdict};
use super::*;

/// A cluster that tells its version and refuses everything else with this code.
fn cluster(code: u16, message: &'static str) -> Site {
    let service = service_fn(move |request: Request<kube::client::Body>| async move {
        let (code, body) = match request.uri().path() {
            "/version" => (
                200,
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0",
                "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
                "compiler": "", "platform": ""}),
            ),
            _ => (
                code,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code, "message": message}),
            ),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        Ok::<_, Infallible>(response)
    });
    Site { client: Client::new(service, "default"), namespace: "tidegate-system".to_owned() }
}

fn verdicts(report: &Report, verdict: Verdict) -> Vec<&'static str> {
    report.findings.iter().filter(|f| f.verdict == verdict).map(|f| f.check).collect()
}

#[tokio::test]
async fn whoever_may_look_at_nothing_is_told_so_and_of_no_fault() {
    let report = examine(&cluster(403, "forbidden: you may not")).await.unwrap();
    assert_eq!(verdicts(&report, Verdict::Ok), ["version"]);
    assert_eq!(verdicts(&report, Verdict::Fail), [""; 0], "{report:?}");
    assert!(report.healthy);
    assert!(verdicts(&report, Verdict::Warn).len() > 10);
}

#[tokio::test]
async fn where_nothing_is_installed_everything_is_missing() {
    let report = examine(&cluster(404, "not found")).await.unwrap();
    let failed = verdicts(&report, Verdict::Fail);
    for check in ["kinds", "gate", "guard", "queue checks", "APIService", "certificate", "programs"]
    {
        assert!(failed.contains(&check), "{check}: {report:?}");
    }
    assert!(!report.healthy);
}

#[test]
fn findings_are_lines_with_what_to_do_below_and_the_sum_last() {
    let report = Report::new(vec![
        Finding::ok("gate", "a webhook adds it"),
        Finding::warn("waiting pods", "3 wait", "look"),
        Finding::fail("guard", "a policy is missing", "apply the chart"),
    ]);
    insta::assert_snapshot!(report.text(), @"
    ok     gate           a webhook adds it
    warn   waiting pods   3 wait
                          -> look
    fail   guard          a policy is missing
                          -> apply the chart

    1 ok, 1 to look at, 1 failed.
    ");
    let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
    assert_eq!(json["healthy"], false);
    assert_eq!(json["findings"][2]["verdict"], "fail");
    assert_eq!(json["findings"][0].get("remedy"), None);
}
