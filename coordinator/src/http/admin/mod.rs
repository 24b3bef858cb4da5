//! Routes for changes by operators.

pub(super) mod create_task;
pub(super) mod enrollment_tokens;
pub(super) mod excuse;
mod idempotency;
mod initial_model;
pub(super) mod model_files;
pub(super) mod operator_tokens;
pub(super) mod pin_version;
pub(super) mod promote_version;
pub(super) mod restore_version;
pub(super) mod revoke_participant;
mod secret;
pub(super) mod sign_ins;
pub(super) mod task_status;
pub(super) mod tell_server;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use secret::secret;

use super::app::App;
use super::times::Times;

/// Routes for changes by operators, authorized by token.
pub(super) fn routes(times: Times) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(times.upload(routes!(create_task::create_task)))
        .routes(times.upload(routes!(model_files::put_file)))
        .routes(times.upload(routes!(model_files::put_part)))
        .routes(times.short(routes!(task_status::pause)))
        .routes(times.short(routes!(task_status::resume)))
        .routes(times.short(routes!(task_status::cancel)))
        .routes(times.short(routes!(task_status::rebase)))
        .routes(times.short(routes!(pin_version::pin)))
        .routes(times.short(routes!(pin_version::unpin)))
        .routes(times.short(routes!(restore_version::restore)))
        .routes(times.short(routes!(promote_version::promote)))
        .routes(times.short(routes!(tell_server::tell, tell_server::leave)))
        .routes(times.short(routes!(excuse::excuse)))
        .routes(times.short(routes!(revoke_participant::revoke_participant)))
        .routes(times.short(routes!(enrollment_tokens::create)))
        .routes(times.short(routes!(operator_tokens::list, operator_tokens::create)))
        .routes(times.short(routes!(operator_tokens::current)))
        .routes(times.short(routes!(operator_tokens::revoke)))
        .routes(times.short(routes!(sign_ins::ways, sign_ins::create)))
        .routes(times.short(routes!(sign_ins::authorize)))
        .routes(times.short(routes!(sign_ins::show, sign_ins::end)))
}
