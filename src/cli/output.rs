//! Tables and machine-readable forms.

use std::io::Write;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;

/// How a reading command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with a wide screen.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// Only their names, as `RESOURCE/NAME`.
    Name,
}

/// What a command leaves on the terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// The answer.
    pub out: String,
    /// A remark beside it, such as that nothing was found.
    pub note: Option<String>,
    /// What was asked about is not well: exit code 1, though the question was answered.
    pub failed: bool,
}

impl Printed {
    /// An answer without a remark.
    pub fn out(out: String) -> Self {
        Self { out, ..Self::default() }
    }

    /// Writes both. A reader that has seen enough (`| head`) is no error.
    pub fn write(&self, out: &mut impl Write, err: &mut impl Write) -> ExitCode {
        let written = out.write_all(self.out.as_bytes()).and_then(|()| out.flush());
        let noted = match &self.note {
            Some(note) => writeln!(err, "{note}"),
            None => Ok(()),
        };
        match written.and(noted) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
            _ if self.failed => ExitCode::FAILURE,
            _ => ExitCode::SUCCESS,
        }
    }
}

/// Rows under headers; columns beyond the first `narrow` need a wide screen.
#[derive(Debug)]
pub struct Table<const N: usize> {
    /// Column titles.
    pub headers: [&'static str; N],
    /// Columns shown without `-o wide`.
    pub narrow: usize,
    /// Cells.
    pub rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Left-aligned columns three spaces apart, an empty table as nothing.
    pub fn render(&self, wide: bool) -> String {
        let shown = if wide { N } else { self.narrow };
        let headers = self.headers.map(str::to_owned);
        let lines: Vec<&[String; N]> = std::iter::once(&headers).chain(&self.rows).collect();
        let widths: Vec<usize> = (0..shown).map(|column| width(&lines, column)).collect();
        if self.rows.is_empty() {
            return String::new();
        }
        lines.iter().map(|cells| line(*cells, &widths)).collect()
    }
}

fn width<const N: usize>(lines: &[&[String; N]], column: usize) -> usize {
    let cells = lines.iter().filter_map(|cells| cells.get(column));
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
    format!("{}\n", padded.join("   ").trim_end())
}

/// An object, or several as a `List`, as JSON or YAML.
pub fn machine<T: Serialize>(
    objects: &[T],
    alone: bool,
    format: Format,
) -> Result<String, Failure> {
    match objects {
        [only] if alone => encode(only, format),
        items => encode(&List { api_version: "v1", kind: "List", items }, format),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [T],
}

fn encode(value: &impl Serialize, format: Format) -> Result<String, Failure> {
    let text = match format {
        Format::Yaml => serde_yaml::to_string(value).map_err(|error| error.to_string()),
        _ => serde_json::to_string_pretty(value).map_err(|error| error.to_string()),
    };
    let text = text.map_err(|error| Failure::Error(format!("cannot print: {error}")))?;
    Ok(format!("{}\n", text.trim_end()))
}

/// A cell for something that may be absent, as kubectl writes it.
pub fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        Table {
            headers: ["NAME", "REASON", "ROOT"],
            narrow: 2,
            rows: vec![row(["größe", "", "Job/a"]), row(["b", "Capacity", "Job/long-name"])],
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        insta::assert_snapshot!(table().render(true), @"
        NAME    REASON     ROOT
        größe              Job/a
        b       Capacity   Job/long-name
        ");
        insta::assert_snapshot!(table().render(false), @"
        NAME    REASON
        größe
        b       Capacity
        ");
    }

    #[test]
    fn an_empty_table_has_no_header() {
        assert_eq!(Table { rows: vec![], ..table() }.render(true), "");
    }

    #[test]
    fn one_object_is_printed_bare_only_when_asked_for_alone() {
        let alone = machine(&["x"], true, Format::Json).unwrap();
        assert_eq!(alone, "\"x\"\n");
        insta::assert_snapshot!(machine(&["x"], false, Format::Yaml).unwrap(), @"
        apiVersion: v1
        kind: List
        items:
        - x
        ");
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        struct Closed(std::io::ErrorKind);
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let printed = Printed::out("x".to_owned());
        let mut nowhere = Vec::new();
        let closed = printed.write(&mut Closed(std::io::ErrorKind::BrokenPipe), &mut nowhere);
        assert_eq!(closed, ExitCode::SUCCESS);
        let ill = Printed { failed: true, ..Printed::default() };
        assert_eq!(ill.write(&mut Vec::new(), &mut nowhere), ExitCode::FAILURE);
        let full = printed.write(&mut Closed(std::io::ErrorKind::StorageFull), &mut nowhere);
        assert_eq!(full, ExitCode::FAILURE);
    }
}
