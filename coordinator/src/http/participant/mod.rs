//! Participants' routes.

pub(super) mod abandon;
pub(super) mod announcements;
pub(super) mod answers;
pub(super) mod check_in;
pub(super) mod enroll;
pub(super) mod masked_input;
pub(super) mod parameters;
pub(super) mod renew;
pub(super) mod upload_parts;
pub(super) mod withdraw;

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::app::App;
use super::times::Times;

/// Routes of participants, authorized by certificate; enrolment by one-time token.
pub(super) fn routes(times: Times) -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(times.short(routes!(enroll::enroll)))
        .routes(times.short(routes!(renew::renew)))
        .routes(times.short(routes!(withdraw::withdraw)))
        .routes(times.poll(routes!(check_in::check_in)))
        .routes(times.poll(routes!(announcements::roster)))
        .routes(times.short(routes!(answers::key_shares, announcements::evidence)))
        .routes(times.poll(routes!(announcements::delivery)))
        .routes(times.short(routes!(answers::complaint)))
        .routes(times.poll(routes!(announcements::survivors)))
        .routes(times.short(routes!(answers::consistency)))
        .routes(times.poll(routes!(announcements::agreement)))
        .routes(times.short(routes!(answers::unmask_shares)))
        .routes(times.upload(routes!(masked_input::masked_input)))
        .routes(times.upload(routes!(upload_parts::manifest)))
        .routes(times.upload(routes!(upload_parts::part)))
        .routes(times.short(routes!(abandon::abandon)))
        .routes(times.short(routes!(parameters::parameters)))
}
