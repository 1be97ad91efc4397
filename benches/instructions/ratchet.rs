//! Instructions of the decision core are held by a budget: unlike times, they are the same on
//! every machine and on a busy one.
//!
//! `./dev ratchet` counts them, and with `TIDEGATE_BLESS=1` makes what is counted the budget.
//! `TIDEGATE_VALGRIND` says where valgrind is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panics")]

use std::{collections::BTreeMap, env, fs, io::Write as _, process::Command};

const BUDGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budget");

/// What is counted, and what it is counted for.
const WORKS: [(&str, &str); 2] =
    [("rounds", "a decision of a cold pass"), ("ends", "an end of a pod")];

/// The C library copies memory by the widest instructions of the processor, which are fewer:
/// not here.
const SAME_COPIES: &str =
    "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM";

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Within,
    /// Three parts in a hundred above the budget.
    TooMany,
    /// A tenth below: slower work would go unnoticed.
    LowerTheBudget,
}

fn judge(counted: u64, budget: u64) -> Verdict {
    if counted * 100 > budget * 103 {
        Verdict::TooMany
    } else if counted * 10 < budget * 9 {
        Verdict::LowerTheBudget
    } else {
        Verdict::Within
    }
}

/// Instructions for one decision or event.
fn count(work: &str) -> u64 {
    let valgrind = env::var("TIDEGATE_VALGRIND").unwrap_or_else(|_| "valgrind".to_owned());
    let done = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect=*counted_{work}*"))
        .args([env!("CARGO_BIN_EXE_instructions"), work])
        .env("GLIBC_TUNABLES", SAME_COPIES)
        .output()
        .expect("valgrind is there");
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{told}");
    let collected = told.lines().find_map(|line| line.split_once("Collected : ")).unwrap();
    let times: u64 = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
    assert!(times > 0, "nothing was done");
    collected.1.trim().parse::<u64>().unwrap() / times
}

fn budgets() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(BUDGET).unwrap_or_default();
    let lines = text.lines().map(|line| line.split_once(' ').unwrap());
    lines.map(|(work, most)| (work.to_owned(), most.parse().unwrap())).collect()
}

#[test]
fn the_core_takes_no_more_instructions_than_its_budget() {
    let counted = WORKS.map(|(work, what)| (work, what, count(work)));
    if env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(BUDGET, counted.map(|(work, _, count)| format!("{work} {count}\n")).concat())
            .unwrap();
    }
    let budgets = budgets();
    let mut bad = Vec::new();
    for (work, what, count) in counted {
        let budget = *budgets.get(work).unwrap_or_else(|| panic!("no budget for {work}"));
        let told = format!("{count} instructions for {what}, the budget is {budget}");
        match judge(count, budget) {
            Verdict::Within => {}
            Verdict::TooMany => bad.push(told),
            // Past what tests keep to themselves while they pass.
            Verdict::LowerTheBudget => {
                let advice = format!("{told}: lower it, TIDEGATE_BLESS=1 ./dev ratchet\n");
                std::io::stderr().write_all(advice.as_bytes()).unwrap();
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_budget_is_passed_by_three_parts_in_a_hundred_and_is_large_by_a_tenth() {
    assert_eq!(judge(1_030, 1_000), Verdict::Within);
    assert_eq!(judge(1_031, 1_000), Verdict::TooMany);
    assert_eq!(judge(900, 1_000), Verdict::Within);
    assert_eq!(judge(899, 1_000), Verdict::LowerTheBudget);
}
