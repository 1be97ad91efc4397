//! `docs/cli.md`, made from the command tree.

use clap::{Arg, Command, CommandFactory};

use super::Cli;
use crate::report::tests::assert_current;

fn markdown() -> String {
    let mut root = Cli::command();
    root.build();
    let mut pages = vec![format!(
        "# Command line\n\nMade from the command tree; `TIDEGATE_BLESS=1 cargo test --lib docs` rewrites \
         it.\n\n{}\n\n{}",
        about(&root),
        root.get_after_help().map(ToString::to_string).unwrap_or_default()
    )];
    describe(&root, "tidegate", &mut pages);
    pages.join("\n\n") + "\n"
}

fn describe(parent: &Command, path: &str, pages: &mut Vec<String>) {
    for command in parent.get_subcommands().filter(|command| command.get_name() != "help") {
        let path = format!("{path} {}", command.get_name());
        if !command.has_subcommands() {
            pages.push(page(command, &path));
        }
        describe(command, &path, pages);
    }
}

fn page(command: &Command, path: &str) -> String {
    let usage: Vec<String> = std::iter::once(path.to_owned())
        .chain(command.get_positionals().map(placeholder))
        .collect();
    let rows: Vec<String> =
        command.get_arguments().filter(|arg| arg.get_id() != "help").map(row).collect();
    let table = match rows.as_slice() {
        [] => String::new(),
        rows => format!("\n\n| argument | meaning |\n|---|---|\n{}", rows.join("\n")),
    };
    format!("## `{}`\n\n{}{table}", usage.join(" "), about(command))
}

fn about(command: &Command) -> String {
    command.get_about().map(|about| format!("{about}.")).unwrap_or_default()
}

fn row(arg: &Arg) -> String {
    let help = arg.get_help().map(|help| format!("{help}.")).unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let values =
        if values.is_empty() { String::new() } else { format!(" One of {}.", values.join(", ")) };
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match (arg.get_action().takes_values(), defaults.as_slice()) {
        (true, [default]) => format!(" Default `{default}`."),
        _ => String::new(),
    };
    let env = arg.get_env().map(|name| format!(" Else ${}.", name.to_string_lossy()));
    format!("| `{}` | {help}{values}{}{default} |", names(arg), env.unwrap_or_default())
}

fn names(arg: &Arg) -> String {
    if arg.is_positional() {
        return placeholder(arg);
    }
    let value =
        if arg.get_action().takes_values() { format!(" {}", value(arg)) } else { String::new() };
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    format!("{short}--{}{value}", arg.get_long().unwrap_or_default())
}

fn placeholder(arg: &Arg) -> String {
    if arg.is_required_set() { value(arg) } else { format!("[{}]", value(arg)) }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or_else(|| arg.get_id().to_string().to_uppercase(), ToString::to_string)
}

#[test]
fn the_committed_page_is_current() {
    assert_current("docs/cli.md", &markdown());
}
