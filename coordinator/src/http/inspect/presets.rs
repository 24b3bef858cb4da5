//! `GET /v1/presets`: built-in example tasks.

use task_spec::{PRESETS, Preset};
use wire::inspect::{Page, PresetView};
use wire::route;

use crate::http::auth::operators::Viewer;
use crate::http::extract::Json;
use crate::http::reply::problem::{Error, Result};

/// List the built-in tasks to begin with, by name.
#[utoipa::path(
    get, path = route::PRESETS, security(("token" = ["viewer"])), responses((status = 200, body = Page<PresetView>)),
)]
pub(in crate::http) async fn list(_: Viewer) -> Result<Json<Page<PresetView>>> {
    let items = PRESETS.iter().map(view).collect::<Result<Vec<_>>>()?;
    Ok(Json(Page { items, next_cursor: None }))
}

fn view(Preset { name, toml }: &Preset) -> Result<PresetView> {
    let mut spec: serde_json::Value = toml::from_str(toml).map_err(Error::fault)?;
    let description = spec.as_object_mut().and_then(|spec| spec.remove("description"));
    let description = description.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    Ok(PresetView { name: (*name).to_owned(), description, spec })
}
