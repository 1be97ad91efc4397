//! Stages of a rotation.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;

fn names() -> Names {
    Names::of_services("tidegate-system", &["tidegate-webhook"], &[])
}

fn day(n: i64) -> Timestamp {
    let days = SignedDuration::from_hours(24 * n);
    Timestamp::from_second(1_800_000_000).unwrap() + days
}

fn steady() -> Held {
    Held::first(&names(), &[], day(0)).unwrap()
}

const PACE: Pace = Pace { settle: Duration::from_secs(10), overlap: Duration::from_secs(100) };

fn step(held: &Held, carried: Option<u64>) -> Step {
    held.step(&names(), carried.map(Duration::from_secs), &PACE, day(1))
}

fn after(held: &Held, step: &Step) -> Held {
    held.clone().after(step, &names(), day(1)).unwrap()
}

fn introduced() -> Held {
    after(&steady(), &Step::Introduce(String::new()))
}

fn switched() -> Held {
    after(&introduced(), &Step::Switch(String::new()))
}

#[test]
fn nothing_is_due_until_somebody_asks() {
    let held = steady();
    assert_eq!(step(&held, Some(1_000_000)), Step::Rest);
    let asked = Held { asked: true, ..held };
    assert!(matches!(step(&asked, None), Step::Introduce(_)));
    assert!(!after(&asked, &step(&asked, None)).asked, "one request, one rotation");
}

#[test]
fn the_new_authority_signs_only_when_all_have_trusted_it_for_a_while() {
    let held = introduced();
    for carried in [None, Some(0), Some(9)] {
        assert_eq!(step(&held, carried), Step::Rest);
    }
    assert!(matches!(step(&held, Some(10)), Step::Switch(_)));
}

#[test]
fn the_earlier_authority_goes_only_after_the_overlap() {
    let held = switched();
    for carried in [None, Some(0), Some(99)] {
        assert_eq!(step(&held, carried), Step::Rest);
    }
    assert_eq!(step(&held, Some(100)), Step::Drop);
    let end = after(&held, &Step::Drop);
    assert!(!end.rotates());
    assert_eq!(end.bundle(), held.authority.ca_crt);
    assert_eq!(step(&end, None), Step::Rest);
}

#[test]
fn a_switch_leaves_the_bundle_as_it_is() {
    let before = introduced();
    let after = after(&before, &Step::Switch(String::new()));
    assert_eq!(before.bundle(), after.bundle());
    assert_ne!(before.authority.tls_crt, after.authority.tls_crt);
    assert!(before.bundle().contains(before.authority.ca_crt.trim()));
}

#[test]
fn a_request_during_a_rotation_waits_for_its_end() {
    let asked = Held { asked: true, ..switched() };
    assert_eq!(step(&asked, Some(5)), Step::Rest);
    let end = after(&asked, &step(&asked, Some(100)));
    assert!(matches!(step(&end, None), Step::Introduce(_)));
}

#[test]
fn a_leaf_is_renewed_in_every_stage() {
    for held in [steady(), introduced(), switched()] {
        let step = held.step(&names(), None, &PACE, day(70));
        assert!(matches!(step, Step::Renew(_)));
        let renewed = held.clone().after(&step, &names(), day(70)).unwrap();
        assert_eq!(renewed.bundle(), held.bundle());
    }
}

#[test]
fn a_next_authority_that_cannot_sign_is_made_again() {
    let mut held = introduced();
    held.next.as_mut().unwrap().ca_key = "x".to_owned();
    let step = step(&held, Some(1_000));
    assert!(matches!(step, Step::Introduce(_)));
    assert!(after(&held, &step).next.unwrap().signs(day(1)).is_ok());
}

#[test]
fn without_a_leaf_that_serves_nothing_is_waited_for() {
    let broken = |held: Held| {
        let authority =
            Authority { tls_crt: String::new(), ca_key: String::new(), ..held.authority };
        Held { authority, ..held }
    };
    assert!(matches!(step(&broken(introduced()), None), Step::Switch(_)));
    assert!(matches!(step(&broken(steady()), None), Step::Replace(_)));
    assert!(matches!(step(&broken(switched()), None), Step::Replace(_)));
}

#[test]
fn who_begins_anew_leaves_callers_what_they_trust() {
    let (one, two) = (steady().bundle(), steady().bundle());
    let texts = [format!("{one}{two}"), one.clone(), "no certificate".to_owned()];
    let held = Held::first(&names(), &texts, day(0)).unwrap();
    assert_eq!(held.bundle(), format!("{one}{two}{}", held.authority.ca_crt));
    assert_eq!(Held::first(&names(), &texts, day(10_000)).unwrap().old, None, "they have ended");
    let many: Vec<_> = (0..ADOPTED + 2).map(|_| steady().bundle()).collect();
    let held = Held::first(&names(), &many, day(0)).unwrap();
    assert_eq!(held.bundle().matches(END).count(), ADOPTED + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is asked and seen, in any order: what is shown by those who have loaded the
    /// leaf late is trusted by those who have the bundle of now, and all comes to an end.
    #[test]
    fn the_leaf_that_may_still_be_shown_is_always_trusted(
        looks in proptest::collection::vec((any::<bool>(), proptest::option::of(0_u64..150)), 1..12),
    ) {
        let mut held = steady();
        // Shown by a server that has not yet loaded the newest, and since when that is known.
        let mut shown = held.authority.clone();
        for (asked, carried) in looks {
            held.asked |= asked;
            let step = step(&held, carried);
            if step == Step::Drop {
                shown = held.authority.clone();
            }
            held = after(&held, &step);
            prop_assert!(held.bundle().contains(shown.ca_crt.trim()));
            prop_assert!(held.bundle().contains(held.authority.ca_crt.trim()));
            prop_assert!(held.bundle().matches(END).count() <= 2);
        }
        held.asked = false;
        for _ in 0..3 {
            held = after(&held, &step(&held, Some(1_000)));
        }
        prop_assert!(!held.rotates());
    }
}
