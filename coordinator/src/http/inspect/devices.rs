//! `GET /v1/devices`: how often devices of each coordinator worked on sums, and the reasons for their choice.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use store::entity::device::{DeviceFilter, DeviceName, DeviceUse};
use utoipa::IntoParams;
use wire::inspect::{DeviceSum, DeviceView, Page};
use wire::route;

use super::narrow::When;
use super::{List, PageQuery, page};
use crate::http::app::App;
use crate::http::auth::operators::InScope;
use crate::http::extract::{Json, Query};
use crate::http::reply::problem::Result;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct DevicesQuery {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 1 to 500; default 50.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// Only the work on sums of this task, by id or name.
    task: Option<String>,
    /// Only the work on sums that were released then or later.
    #[param(inline)]
    since: Option<When>,
}

/// List the devices that worked on sums, by their names and their coordinators' names.
#[utoipa::path(
    get, path = route::DEVICES, params(DevicesQuery), security(("token" = ["viewer"])),
    responses((status = 200, body = Page<DeviceView>), (status = 404)),
)]
pub(in crate::http) async fn list(
    InScope(bearer): InScope,
    State(app): State<Arc<App>>,
    Query(query): Query<DevicesQuery>,
) -> Result<Json<Page<DeviceView>>> {
    let DevicesQuery { cursor, limit, task, since } = query;
    let paging = PageQuery { cursor, limit };
    let (limit, place) = (paging.limit()?, paging.place::<Place>(List::Devices)?);
    let task = match task {
        Some(named) => Some(app.task_within(&bearer.scope, &named).await?.id),
        None => None,
    };
    let filter = &DeviceFilter { task, since: since.map(|When(since)| since), scope: bearer.scope };
    let after = place.as_ref().map(|Place(name)| name);
    let rows = app
        .store
        .read("list_devices", |tx| Box::pin(async move { tx.devices(filter, after, limit + 1).await }))
        .await?;
    Ok(Json(page(List::Devices, rows, limit, |row| Place(row.name.clone()), view)))
}

fn view(row: DeviceUse) -> DeviceView {
    let DeviceUse { name, sums, added, unmasked, last, last_at, last_failure } = row;
    DeviceView {
        device: name.device,
        coordinator: name.coordinator,
        sums,
        summed_because: added,
        unmasked_because: unmasked,
        last: DeviceSum { task: last.task, round: last.round, attempt: last.attempt, at: last_at },
        last_failure,
    }
}

/// A position in the list. The cursor encodes both names in hexadecimal, since they may contain any character.
#[derive(Debug, PartialEq, Eq)]
struct Place(DeviceName);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceName { device, coordinator } = &self.0;
        write!(f, "{}.{}", hex::encode(device), hex::encode(coordinator.as_deref().unwrap_or_default()))
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let name = |digits: &str| hex::decode(digits).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (device, coordinator) = text.split_once('.').ok_or("a place has two names")?;
        let (device, coordinator) =
            name(device).zip(name(coordinator)).ok_or("a name is text in hexadecimal digits")?;
        Ok(Self(DeviceName { device, coordinator: Some(coordinator).filter(|name| !name.is_empty()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_whatever_the_names_are() {
        for (device, coordinator) in [("cpu (avx512, 2 threads)", Some("north")), ("Gerät.1&x=%", None)] {
            let place = Place(DeviceName { device: device.to_owned(), coordinator: coordinator.map(str::to_owned) });
            let text = place.to_string();
            assert!(text.chars().all(|char| char.is_ascii_hexdigit() || char == '.'), "{text}");
            assert_eq!(text.parse::<Place>(), Ok(place));
        }
        for wrong in ["", "6e", "6e.6", "6e.zz", "6e.6e.6e", "ff.6e"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
