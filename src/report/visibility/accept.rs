//! What form of an answer a client wants.

/// Forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The objects themselves.
    Json,
    /// Columns and cells, for `kubectl get`.
    Table,
}

/// How much of its object a table's row carries, from `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; an empty one is as none.
    pub fn parse(value: Option<&str>) -> Result<Self, String> {
        match value {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(format!("includeObject is None, Metadata or Object, not {other:?}")),
        }
    }
}

/// The form that an `Accept` header prefers of those served here.
///
/// A client that only takes what is not served (protobuf, YAML) gets JSON and its
/// content type, as HTTP allows: it can say more about that than a bare 406.
#[must_use]
pub fn negotiate(accept: Option<&str>) -> Form {
    let ranges = accept.unwrap_or_default().split(',').filter_map(range);
    // Of equals `max_by_key` takes the last, and the first is meant.
    ranges.rev().max_by_key(|&(_, quality)| quality).map_or(Form::Json, |(form, _)| form)
}

/// A media range as the form it stands for and its quality in thousandths.
fn range(text: &str) -> Option<(Form, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next()?;
    let mut wanted = Wanted { quality: 1000, ..Wanted::default() };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        wanted.set(key.trim(), value.trim());
    }
    let form = match media {
        "application/json" => wanted.form()?,
        "*/*" | "application/*" => Form::Json,
        _ => return None,
    };
    (wanted.quality > 0).then_some((form, wanted.quality))
}

#[derive(Default)]
struct Wanted<'a> {
    quality: u16,
    kind: Option<&'a str>,
    group: &'a str,
    version: &'a str,
}

impl<'a> Wanted<'a> {
    fn set(&mut self, key: &str, value: &'a str) {
        match key {
            "q" => self.quality = quality(value),
            "as" => self.kind = Some(value),
            "g" => self.group = value,
            "v" => self.version = value,
            _ => {}
        }
    }

    fn form(&self) -> Option<Form> {
        match (self.kind, self.group, self.version) {
            (None, ..) => Some(Form::Json),
            (Some("Table"), "meta.k8s.io", "v1") => Some(Form::Table),
            _ => None,
        }
    }
}

/// `0.5` in thousandths; what cannot be read counts as not wanted.
fn quality(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse::<u16>()) {
        ("0", Ok(thousandths)) => thousandths,
        ("1", Ok(0)) => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
        application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    #[rstest]
    #[case::kubectl(KUBECTL, Form::Table)]
    #[case::spaces("application/json; as=Table; g=meta.k8s.io; v=v1", Form::Table)]
    #[case::plain("application/json", Form::Json)]
    #[case::anything("*/*", Form::Json)]
    #[case::nothing("", Form::Json)]
    #[case::protobuf_first("application/vnd.kubernetes.protobuf,application/json", Form::Json)]
    #[case::protobuf_only("application/vnd.kubernetes.protobuf", Form::Json)]
    #[case::yaml("application/yaml", Form::Json)]
    #[case::table_of_unknown_version("application/json;as=Table;v=v9;g=meta.k8s.io", Form::Json)]
    #[case::table_in_protobuf(
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
        Form::Json
    )]
    #[case::by_quality(
        "application/json;q=0.5,application/json;as=Table;v=v1;g=meta.k8s.io;q=0.9",
        Form::Table
    )]
    #[case::refused("application/json;as=Table;v=v1;g=meta.k8s.io;q=0,*/*;q=0.1", Form::Json)]
    #[case::bad_quality(
        "application/json;as=Table;v=v1;g=meta.k8s.io;q=x,application/json",
        Form::Json
    )]
    fn the_preferred_form_that_is_served_wins(#[case] accept: &str, #[case] form: Form) {
        assert_eq!(negotiate(Some(accept)), form);
    }

    #[test]
    fn rows_carry_metadata_unless_told_otherwise() {
        assert_eq!(IncludeObject::parse(None), Ok(IncludeObject::Metadata));
        assert_eq!(IncludeObject::parse(Some("Object")), Ok(IncludeObject::Object));
        assert!(IncludeObject::parse(Some("all")).is_err());
    }
}
