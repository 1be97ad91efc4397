//! The rooms keep to the plan: who may use whom, no dead files, no giants.
//!
//! A new arrow is a change of `MAY_USE` and of ARCHITECTURE.md in one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms a room may use besides itself.
const MAY_USE: &[(&str, &[&str])] = &[
    ("quantity", &[]),
    ("api", &[]),
    ("manifests", &["api"]),
    ("engine", &[]),
    ("record", &["engine::log"]),
    ("grouping", &["api"]),
    ("view", &["engine", "quantity"]),
    ("clusters", &["api", "quantity", "grouping", "engine::event", "engine::model"]),
    ("admission", &["api", "quantity", "grouping", "view"]),
    ("control", &["engine", "view"]),
    ("release", &["api", "quantity", "engine::action", "engine::event", "engine::model"]),
    ("report", &["api", "quantity", "view", "engine::reason", "engine::event"]),
    ("certs", &["api"]),
    ("leader", &["api"]),
    ("runtime", &[]),
];

/// Crates a room must not touch, on top of the table.
const MUST_NOT_USE: &[(&str, &[&str])] = &[
    ("quantity", &["kube", "k8s_openapi", "tokio", "serde", "std::time", "std::env"]),
    (
        "engine",
        &[
            "kube",
            "k8s_openapi",
            "tokio",
            "serde_json",
            "postcard",
            "std::time",
            "std::env",
            "HashMap",
            "HashSet",
            "f32",
            "f64",
        ],
    ),
    ("grouping", &["kube", "tokio", "std::time", "std::env", "HashMap", "HashSet"]),
    ("view", &["kube", "tokio"]),
    ("control", &["kube", "k8s_openapi"]),
];

/// Longest file without its tests, in lines.
const FILE_LINES: usize = 500;
/// Longest function, in lines.
const FUNCTION_LINES: usize = 70;

/// What the lib exports of `engine` at its top, by the module it is from.
const ENGINE_MODEL: &[&str] = &[
    "Assignment",
    "ClusterId",
    "Forbidden",
    "Gang",
    "GroupId",
    "Growth",
    "Millis",
    "NodeId",
    "Order",
    "PodId",
    "PodState",
    "QueueId",
    "Reclaim",
    "ResourceId",
    "SingletonId",
    "Uid",
    "Vector",
    "DomainId",
    "Placement",
    "TopologyId",
    "WithinQueue",
];
const ENGINE_REASON: &[&str] = &["Reason", "Shortage"];

struct Source {
    room: String,
    path: PathBuf,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths
        .into_iter()
        .map(|path| {
            let below = path.strip_prefix(&root).unwrap();
            let top = below.components().next().unwrap().as_os_str().to_str().unwrap();
            Source {
                room: top.trim_end_matches(".rs").to_owned(),
                text: fs::read_to_string(&path).unwrap(),
                path,
            }
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Lines that are code and not a test module's.
fn code(source: &Source) -> Vec<&str> {
    let below = source.path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&source.path);
    let is_test = below.iter().any(|part| part == "tests" || part == "tests.rs");
    let end = source.text.find("#[cfg(test)]\nmod tests {").unwrap_or(source.text.len());
    if is_test { Vec::new() } else { source.text[..end].lines().collect() }
}

/// Whole statements, so that a `use` over several lines is seen as one.
fn statements(source: &Source) -> String {
    code(source)
        .iter()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
}

/// `crate::a::b` paths of a text, with `{..}` lists of a `use` opened one level.
fn paths(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':' || c == '{'))
            .unwrap_or(rest.len());
        match rest[..end].split_once('{') {
            None => drop(found.insert(rest[..end].trim_end_matches(':').to_owned())),
            Some((prefix, _)) => {
                let open = rest.find('{').unwrap();
                let list = &rest[open + 1..rest.find('}').unwrap_or(rest.len())];
                for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                    found.insert(format!("{prefix}{name}"));
                }
            }
        }
    }
    found
}

/// `engine::QueueId` is the model's, whatever way it is exported.
fn origin(path: &str) -> String {
    match path.strip_prefix("engine::") {
        Some(name) if ENGINE_MODEL.contains(&name) => "engine::model".to_owned(),
        Some(name) if ENGINE_REASON.contains(&name) => "engine::reason".to_owned(),
        _ => path.to_owned(),
    }
}

#[test]
fn every_room_uses_only_the_rooms_it_may() {
    let table: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources() {
        if matches!(source.room.as_str(), "cli" | "main" | "lib") {
            continue;
        }
        let allowed = table
            .get(source.room.as_str())
            .unwrap_or_else(|| panic!("room {} is not in the table", source.room));
        for path in paths(&statements(&source)) {
            let path = origin(&path);
            let inside = |room: &str| path == room || path.starts_with(&format!("{room}::"));
            if !inside(&source.room) && !allowed.iter().any(|room| inside(room)) {
                wrong.push(format!("{} uses {path}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "not in the table:\n{}", wrong.join("\n"));
}

/// The one hash map of a pure room: asked by key and never gone through.
const ASKED_BY_KEY: &str = "src/engine/directory.rs";

#[test]
fn pure_rooms_stay_pure() {
    let mut wrong = Vec::new();
    for source in sources() {
        let banned = MUST_NOT_USE.iter().find(|(room, _)| *room == source.room);
        let text = statements(&source);
        for word in banned.map_or(&[][..], |(_, words)| words) {
            let used = text.match_indices(word).any(|(at, _)| {
                let edge = |c: Option<char>| c.is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
                edge(text[..at].chars().next_back()) && edge(text[at + word.len()..].chars().next())
            });
            if used && !(source.path.ends_with(ASKED_BY_KEY) && *word == "HashMap") {
                wrong.push(format!("{} uses {word}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "banned:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_is_a_module() {
    let all = sources();
    let declared: BTreeSet<(PathBuf, String)> = all
        .iter()
        .flat_map(|source| {
            let folder = match source.path.file_stem().unwrap().to_str().unwrap() {
                "mod" | "lib" | "main" => source.path.parent().unwrap().to_owned(),
                stem => source.path.with_file_name(stem),
            };
            source.text.lines().filter_map(move |line| {
                let name = line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
                let name = name.strip_prefix("mod ")?.strip_suffix(';')?;
                Some((folder.clone(), name.to_owned()))
            })
        })
        .collect();
    for source in &all {
        let stem = source.path.file_stem().unwrap().to_str().unwrap();
        let (folder, name) = match stem {
            "lib" | "main" => continue,
            "mod" => {
                let folder = source.path.parent().unwrap();
                (folder.parent().unwrap().to_owned(), folder.file_name().unwrap().to_str().unwrap())
            }
            stem => (source.path.parent().unwrap().to_owned(), stem),
        };
        assert!(
            declared.contains(&(folder, name.to_owned())),
            "{} is not compiled: no `mod {name};`",
            source.path.display()
        );
    }
}

#[test]
fn files_and_functions_stay_small() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = code(&source);
        if lines.len() > FILE_LINES {
            wrong.push(format!("{}: {} lines", source.path.display(), lines.len()));
        }
        for (name, length) in functions(&lines) {
            if length > FUNCTION_LINES {
                wrong.push(format!("{}: fn {name} has {length} lines", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "too long:\n{}", wrong.join("\n"));
}

/// Names and lengths of functions, by the indentation of their closing brace.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let Some(at) = trimmed.find("fn ").filter(|&at| at < 24 && !trimmed.starts_with("//"))
        else {
            continue;
        };
        let indent = line.len() - trimmed.len();
        let closing = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().position(|line| *line == closing).unwrap_or(0);
        let name = trimmed[at + 3..].split(['(', '<']).next().unwrap_or_default();
        found.push((name.to_owned(), length));
    }
    found
}

#[test]
fn the_toolchain_is_the_same_everywhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pinned = fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    assert!(pinned.contains(&format!("channel = \"{}.0\"", env!("CARGO_PKG_RUST_VERSION"))));
}

/// `docs/security.md` says of each attack, `docs/faults.md` of each fault, which tests show
/// what becomes of it. Long names end in `…` there.
#[test]
fn tests_that_the_docs_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    for folder in ["src", "tests/it"] {
        let mut files = Vec::new();
        collect(&root.join(folder), &mut files);
        code.extend(files.iter().map(|path| fs::read_to_string(path).unwrap()));
    }
    for page in ["docs/security.md", "docs/faults.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        // A test's name has many words; a field or a crate has not.
        let named: BTreeSet<_> = text
            .split('`')
            .filter(|word| word.matches('_').count() >= 3 && !word.contains(' '))
            .collect();
        assert!(named.len() > 20, "{named:?}");
        let exists = |name: &str| match name.strip_suffix('…') {
            Some(begin) => code.contains(&format!("fn {begin}")),
            None => code.contains(&format!("fn {name}(")),
        };
        let missing: Vec<_> = named.into_iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "{page}: no test is called {missing:#?}");
    }
}

/// Tests share a cluster: a queue of a name that another test made is not theirs.
#[test]
fn no_two_tests_name_their_lab_alike() {
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"), &mut paths);
    let mut named = BTreeSet::new();
    let start = "Lab::new(\"";
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices(start) {
            let name: String = text[at + start.len()..].chars().take_while(|&c| c != '"').collect();
            assert!(named.insert(name.clone()), "{} names {name} again", path.display());
        }
    }
    assert!(named.len() > 20, "{named:?}");
}
