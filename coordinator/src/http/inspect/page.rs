//! Pages of lists.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use utoipa::IntoParams;
use wire::inspect::Page;

use crate::http::reply::problem::{Error, Result};

/// Default and maximum number of items per page.
const PAGE: u32 = 50;
const PAGE_MAX: u32 = 500;

/// The kind of a list. Cursors contain it, so a cursor of another list is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum List {
    Tasks,
    Rounds,
    Assignments,
    Models,
    Servers,
    Devices,
    Releases,
    Participants,
    Events,
    OperatorTokens,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Rounds => "rounds",
            Self::Assignments => "assignments",
            Self::Models => "models",
            Self::Servers => "servers",
            Self::Devices => "devices",
            Self::Releases => "releases",
            Self::Participants => "participants",
            Self::Events => "events",
            Self::OperatorTokens => "operator-tokens",
        }
    }

    /// The cursor for the items after a position.
    pub(super) fn cursor(self, place: impl Display) -> String {
        format!("{}.{place}", self.name())
    }

    /// The position in a cursor of this list.
    fn place<T: FromStr>(self, cursor: &str) -> Option<T> {
        cursor.strip_prefix(self.name())?.strip_prefix('.')?.parse().ok()
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct PageQuery {
    /// `next_cursor` of the previous page.
    pub(super) cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    pub(super) limit: Option<u32>,
}

impl PageQuery {
    pub(in crate::http) fn limit(&self) -> Result<u32> {
        match self.limit.unwrap_or(PAGE) {
            limit @ 1..=PAGE_MAX => Ok(limit),
            _ => Err(Error::InvalidValue(format!("limit must be between 1 and {PAGE_MAX}"))),
        }
    }

    /// The position before the page.
    ///
    /// # Errors
    /// The cursor belongs to another kind of list.
    pub(in crate::http) fn place<T: FromStr>(&self, list: List) -> Result<Option<T>> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let refused = || {
            let detail = "cursor must be the `next_cursor` of the page before in the list of";
            Error::InvalidValue(format!("{detail} {}: this one is no place in it", list.name()))
        };
        list.place(cursor).map(Some).ok_or_else(refused)
    }
}

/// Makes a page of a list, of up to `limit` items, from rows queried with `limit + 1`.
pub(in crate::http) fn page<R, T, P: Display>(
    list: List,
    mut rows: Vec<R>,
    limit: u32,
    place: impl Fn(&R) -> P,
    view: impl Fn(R) -> T,
) -> Page<T> {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(|last| list.cursor(place(last)));
    Page { items: rows.into_iter().map(view).collect(), next_cursor }
}
