//! Pages of lists.

use serde::Deserialize;
use utoipa::IntoParams;
use wire::inspect::Page;

use crate::http::problem::{Error, Result};

/// Default and maximum number of items per page.
const PAGE: u32 = 50;
const PAGE_MAX: u32 = 500;

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

    pub(in crate::http) fn cursor<T: std::str::FromStr>(&self) -> Result<Option<T>> {
        let parse = |text: &String| text.parse().map_err(|_| ());
        self.cursor
            .as_ref()
            .map(parse)
            .transpose()
            .map_err(|()| Error::InvalidValue("cursor must be the `next_cursor` of the page before".to_owned()))
    }
}

/// Makes a page of up to `limit` items from rows queried with `limit + 1`.
pub(in crate::http) fn page<R, T>(
    mut rows: Vec<R>,
    limit: u32,
    cursor: impl Fn(&R) -> String,
    view: impl Fn(R) -> T,
) -> Page<T> {
    let limit = limit as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next_cursor = rows.last().filter(|_| more).map(cursor);
    Page { items: rows.into_iter().map(view).collect(), next_cursor }
}
