//! Inputs near those of a corpus.

use serde_json::{Value, json};

/// Numbers that look random and are the same every time (`SplitMix64`).
pub struct Random(u64);

impl Random {
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`; 0 when that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Names and texts that mean something here, or nearly.
const WORDS: &[&str] = &[
    "",
    "tidegate.dev/queue",
    "tidegate.dev/managed",
    "tidegate.dev/released",
    "tidegate.dev/min-count",
    "metadata",
    "spec",
    "labels",
    "annotations",
    "schedulingGates",
    "ownerReferences",
    "controller",
    "uid",
    "name",
    "true",
    "CREATE",
    "system:nodes",
    "~0~1",
    "\u{0}",
    "1e99999999999",
    "-1",
    "9223372036854775807Ei",
    "0.0000000000000000001n",
    "4294967296",
    "1E",
];

/// The largest bodies that are read, of the worst shapes.
pub fn largest() -> Vec<Vec<u8>> {
    const SIZE: usize = 7 << 20;
    let many =
        |item: &str| format!("[{}null]", format!("{item},").repeat(SIZE / (item.len() + 1) - 2));
    let owners = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"r",
        "resource":{{"group":"","version":"v1","resource":"pods"}},"operation":"CREATE",
        "object":{{"metadata":{{"ownerReferences":[{}{{}}]}}}}}}}}"#,
        r#"{"uid":"u"},"#.repeat(20_000)
    );
    let texts = [
        "[".repeat(SIZE),
        r#"{"request":"#.repeat(SIZE / 11),
        "9".repeat(SIZE),
        format!("\"{}\"", "\\u0000".repeat(SIZE / 6)),
        many("{}"),
        owners,
    ];
    texts.map(String::into_bytes).into()
}

/// One of the corpus with a few changes.
pub fn changed(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(corpus).clone();
    let structured = random.below(4) > 0;
    for _ in 0..=random.below(4) {
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut value) if structured => {
                change_value(&mut value, random);
                bytes = serde_json::to_vec(&value).unwrap();
            }
            _ => change_bytes(&mut bytes, corpus, random),
        }
    }
    bytes
}

fn change_value(value: &mut Value, random: &mut Random) {
    let descends = random.below(5) > 0;
    match value {
        Value::Object(fields) if descends && !fields.is_empty() => {
            let at = random.below(fields.len());
            let field = fields.values_mut().nth(at).unwrap();
            change_value(field, random);
        }
        Value::Array(items) if descends && !items.is_empty() => {
            let at = random.below(items.len());
            change_value(&mut items[at], random);
        }
        Value::Object(fields) => match random.below(3) {
            0 => drop(fields.insert((*random.pick(WORDS)).to_owned(), odd(random))),
            1 => {
                let name = fields.keys().nth(random.below(fields.len())).cloned();
                name.map(|name| fields.remove(&name));
            }
            _ => *value = odd(random),
        },
        Value::Array(items) => match random.below(3) {
            0 => items.push(odd(random)),
            1 => items.extend(items.clone().into_iter().take(64)),
            _ => *value = odd(random),
        },
        _ => *value = odd(random),
    }
}

/// A value that is seldom meant.
fn odd(random: &mut Random) -> Value {
    match random.below(10) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!([null, null, null]),
        4 => json!(random.next()),
        5 => json!(i64::MIN),
        6 => json!(-0.5),
        7 => json!(random.below(2) == 0),
        8 => json!({"name": "tidegate.dev/queue", "tidegate.dev/managed": "true"}),
        _ => json!(*random.pick(WORDS)),
    }
}

fn change_bytes(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(16)).min(bytes.len());
    match random.below(5) {
        0 => drop(bytes.drain(at..end)),
        1 => drop(bytes.splice(at..end, random.pick(WORDS).bytes())),
        2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        3 => {
            let other = random.pick(corpus);
            let from = random.below(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let again = bytes[at..end].repeat(1 + random.below(8));
            bytes.splice(at..at, again);
        }
    }
}
