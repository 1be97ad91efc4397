//! Cutting a long list into pages.

use std::ops::Bound;
use std::sync::Arc;

use crate::view::{GroupRow, View};

use super::select::Selection;

/// Groups in one answer at most, whatever the client asks.
pub const MOST: usize = 5000;

/// Namespace and name of a group.
type Key = (Arc<str>, Arc<str>);

/// Which groups, and which part of them.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// What must hold of a group.
    pub selection: Selection,
    /// The page after this one, from `continue`.
    after: Option<Key>,
    /// Groups in the answer.
    limit: usize,
}

/// One page, in order of namespace and name.
#[derive(Debug)]
pub struct Page<'a> {
    /// Namespaces and groups.
    pub groups: Vec<(&'a str, &'a GroupRow)>,
    /// Token for the next page.
    pub continue_: Option<String>,
}

impl<'a> Request<'a> {
    /// Reads `limit` and `continue`; the error is for the caller. A limit of 0 or
    /// none at all means [`MOST`].
    pub fn new(
        namespace: Option<&'a str>,
        selection: Selection,
        limit: Option<&str>,
        continue_: Option<&str>,
    ) -> Result<Self, String> {
        let after = continue_.filter(|token| !token.is_empty()).map(key).transpose()?;
        if let (Some(namespace), Some((elsewhere, _))) = (namespace, &after)
            && **elsewhere != *namespace
        {
            return Err("this continue token belongs to another list".to_owned());
        }
        Ok(Self { namespace, selection, after, limit: limit_of(limit)? })
    }

    /// The page of this view. Since the token is a place in the order, groups that
    /// come and go between pages move nothing else.
    #[must_use]
    pub fn of<'v>(&self, view: &'v View) -> Page<'v> {
        let mut groups: Vec<_> = self.matching(view).take(self.limit + 1).collect();
        let more = groups.len() > self.limit;
        groups.truncate(self.limit);
        let last = groups.last().filter(|_| more);
        let continue_ = last.map(|(namespace, row)| format!("{namespace}/{}", row.name));
        Page { groups, continue_ }
    }

    fn matching<'v>(&self, view: &'v View) -> impl Iterator<Item = (&'v str, &'v GroupRow)> {
        view.groups
            .range((self.start(), Bound::Unbounded))
            .map(|((namespace, _), row)| (&**namespace, &**row))
            .take_while(|(namespace, _)| self.namespace.is_none_or(|only| only == *namespace))
            .filter(|(namespace, row)| self.selection.takes(namespace, row))
    }

    fn start(&self) -> Bound<Key> {
        match (&self.after, self.namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included((namespace.into(), "".into())),
            (None, None) => Bound::Unbounded,
        }
    }
}

fn key(token: &str) -> Result<Key, String> {
    let parts = token.split_once('/');
    let (namespace, name) = parts.ok_or("this continue token was not made here")?;
    Ok((namespace.into(), name.into()))
}

fn limit_of(text: Option<&str>) -> Result<usize, String> {
    let limit: usize = match text {
        None | Some("") => 0,
        Some(text) => text.parse().map_err(|_| format!("limit is a number, not {text:?}"))?,
    };
    Ok(if limit == 0 { MOST } else { limit.min(MOST) })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::report::tests::view;

    fn names(page: &Page) -> Vec<String> {
        page.groups.iter().map(|(namespace, row)| format!("{namespace}/{}", row.name)).collect()
    }

    #[test]
    fn pages_join_to_the_whole_list() {
        let (view, mut seen, mut token) = (view(), Vec::new(), None::<String>);
        loop {
            let all = Selection::default();
            let request = Request::new(None, all, Some("1"), token.as_deref()).unwrap();
            let page = request.of(&view);
            assert_eq!(page.groups.len(), 1);
            seen.extend(names(&page));
            token = page.continue_;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, ["ml/rayjob-x-1f2e", "ml/rayjob-y-1f2e", "web/rayjob-z-1f2e"]);
    }

    #[test]
    fn a_namespace_is_never_left() {
        let view = view();
        for token in [None, Some("ml/rayjob-y-1f2e"), Some("ml/zzz")] {
            let request = Request::new(Some("ml"), Selection::default(), None, token).unwrap();
            let page = request.of(&view);
            assert!(page.groups.iter().all(|&(namespace, _)| namespace == "ml"));
        }
        assert!(Request::new(Some("ml"), Selection::default(), None, Some("web/a")).is_err());
    }

    #[test]
    fn the_last_page_of_a_selection_has_no_token() {
        let view = view();
        let web = Selection::parse(Some("metadata.namespace=web"), None).unwrap();
        let page = Request::new(None, web, Some("1"), None).unwrap().of(&view);
        assert_eq!((names(&page).len(), page.continue_), (1, None));
    }

    #[rstest]
    #[case(None, MOST)]
    #[case(Some("0"), MOST)]
    #[case(Some("7"), 7)]
    #[case(Some("99999999"), MOST)]
    fn no_answer_is_longer_than_the_most(#[case] text: Option<&str>, #[case] limit: usize) {
        assert_eq!(limit_of(text), Ok(limit));
    }

    #[rstest]
    #[case(Some("-1"), None)]
    #[case(Some("many"), None)]
    #[case(None, Some("abc"))]
    fn nonsense_is_refused(#[case] limit: Option<&str>, #[case] token: Option<&str>) {
        assert!(Request::new(None, Selection::default(), limit, token).is_err());
    }
}
