//! Operators' read-only views.

pub(super) mod assignments;
mod attempt;
mod audit;
mod compare;
pub(super) mod contributions;
pub(super) mod devices;
mod distribution;
pub(super) mod ended_rounds;
mod events;
pub(super) mod models;
mod narrow;
mod page;
pub(super) mod participants;
pub(super) mod presets;
pub(super) mod privacy;
mod protection;
mod round_view;
pub(super) mod rounds;
pub(super) mod servers;
pub(super) mod tasks;
mod wait;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) use page::{List, PageQuery, page};

use super::app::App;
use super::times::Times;

/// Routes for operators' views, authorized by token.
pub(super) fn routes(times: Times) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(times.short(routes!(tasks::list)))
        .routes(times.short(routes!(tasks::show)))
        .routes(times.short(routes!(rounds::list)))
        .routes(times.poll(routes!(rounds::show)))
        .routes(times.short(routes!(assignments::list)))
        .routes(times.short(routes!(compare::compare)))
        .routes(times.short(routes!(presets::list)))
        .routes(times.short(routes!(privacy::show)))
        .routes(times.short(routes!(privacy::export)))
        .routes(times.short(routes!(privacy::total)))
        .routes(times.poll(routes!(models::list)))
        .routes(times.short(routes!(models::show)))
        .routes(times.short(routes!(models::provenance)))
        .routes(times.short(routes!(servers::list)))
        .routes(times.short(routes!(devices::list)))
        .routes(times.short(routes!(participants::list)))
        .routes(times.short(routes!(participants::show)))
        .routes(times.short(routes!(contributions::show)))
        .routes(times.short(routes!(events::all)))
        .routes(times.short(routes!(events::of_task)))
        .routes(times.short(routes!(audit::list)))
        .routes(times.short(routes!(audit::export)))
        .routes(times.short(routes!(audit::key)))
}
