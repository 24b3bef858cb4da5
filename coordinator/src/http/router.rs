//! Every route on one screen.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::{MethodRouter, get, post, put};
use axum::{Router, response::Response};
use wire::participant::{Announcement, Answer};
use wire::route;

use super::app::App;
use super::authenticate::Anybody;
use super::problem::Error;
use super::trace::{Names, trace, within};
use super::{admin, inspect, openapi, operations, participant};

/// The service, without a socket. Requests carry a [`super::Connection`] in their extensions.
///
/// Bodies are bounded where they are read (`extract`, `masked_input`), rates where the peer is known (`authenticate`),
/// time here.
pub(crate) fn router(app: Arc<App>) -> Router {
    let settings = app.settings;
    let short = |routes: MethodRouter<Arc<App>>| limit(routes, settings.request_timeout);
    let poll = |routes: MethodRouter<Arc<App>>| limit(routes, settings.poll_max + settings.request_timeout);
    let upload = |routes: MethodRouter<Arc<App>>| limit(routes, settings.upload_timeout);
    let names = Arc::new(Names::new(&app));

    Router::new()
        // Participants, by certificate; enrolment by one-time token.
        .route(route::ENROLL, short(post(participant::enroll::enroll)))
        .route(route::RENEW, short(post(participant::renew::renew)))
        .route(route::CHECK_IN, poll(post(participant::check_in::check_in)))
        .route(route::ROSTER, poll(get(participant::announcements::roster)))
        .route(
            route::KEY_SHARES,
            short(participant::answers::taking(Answer::KeyShares).get(participant::announcements::evidence)),
        )
        .route(route::DELIVERY, poll(get(participant::announcements::delivery)))
        .route(route::COMPLAINT, short(participant::answers::taking(Answer::Complaint)))
        .route(route::SURVIVORS, poll(participant::announcements::telling(Announcement::Survivors)))
        .route(route::CONSISTENCY, short(participant::answers::taking(Answer::Consistency)))
        .route(route::AGREEMENT, poll(participant::announcements::telling(Announcement::Agreement)))
        .route(route::UNMASK_SHARES, short(participant::answers::taking(Answer::UnmaskShares)))
        .route(route::ABORT_STATEMENT, short(put(participant::abort_statements::say)))
        .route(route::ABORT_STATEMENTS, short(get(participant::abort_statements::show)))
        .route(route::MASKED_INPUT, upload(put(participant::masked_input::masked_input)))
        .route(route::ABANDON, short(post(participant::abandon::abandon)))
        .route(route::MODEL_PARAMETERS, short(get(participant::parameters::parameters)))
        // Operators, by token: look.
        .route(route::TASKS, short(get(inspect::tasks::list).post(admin::create_task::create_task)))
        .route(route::TASK, short(get(inspect::tasks::show)))
        .route(route::ROUNDS, short(get(inspect::rounds::list)))
        .route(route::ROUND, poll(get(inspect::rounds::show)))
        .route(route::ASSIGNMENTS, short(get(inspect::assignments::list)))
        .route(route::TASK_PRIVACY, short(get(inspect::privacy::show)))
        .route(route::PRIVACY, short(get(inspect::privacy::total)))
        .route(route::MODELS, short(get(inspect::models::list)))
        .route(route::MODEL, short(get(inspect::models::show)))
        .route(route::PARTICIPANTS, short(get(inspect::participants::list)))
        .route(route::PARTICIPANT, short(get(inspect::participants::show)))
        // Operators: change.
        .route(route::TASK_PAUSE, short(post(admin::task_status::pause)))
        .route(route::TASK_RESUME, short(post(admin::task_status::resume)))
        .route(route::TASK_CANCEL, short(post(admin::task_status::cancel)))
        .route(route::TASK_REBASE, short(post(admin::task_status::rebase)))
        .route(route::EXCUSE, short(post(admin::excuse::excuse)))
        .route(route::PARTICIPANT_REVOKE, short(post(admin::revoke_participant::revoke_participant)))
        .route(route::ENROLLMENT_TOKENS, short(post(admin::enrollment_tokens::create)))
        .route(route::OPERATOR_TOKENS, short(get(admin::operator_tokens::list).post(admin::operator_tokens::create)))
        .route(route::OPERATOR_TOKEN_REVOKE, short(post(admin::operator_tokens::revoke)))
        // Whoever runs the service.
        .route(route::HEALTHZ, short(get(operations::healthz)))
        .route(route::READYZ, short(get(operations::readyz)))
        .route(route::METRICS, short(get(operations::metrics)))
        .route(route::OPENAPI, short(get(openapi::serve)))
        .fallback(|_: Anybody| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(DefaultBodyLimit::disable())
        .layer(map_response(hide))
        .layer(from_fn_with_state(names, trace))
        .with_state(app)
}

/// What whoever looks after the service asks, for a listener that is theirs alone.
pub(crate) fn health_router(app: Arc<App>) -> Router {
    let short = |routes: MethodRouter<Arc<App>>| limit(routes, app.settings.request_timeout);
    let names = Arc::new(Names::new(&app));
    Router::new()
        .route(route::HEALTHZ, short(get(operations::healthz)))
        .route(route::READYZ, short(get(operations::readyz)))
        .route(route::METRICS, short(get(operations::metrics_apart)))
        .fallback(|_: Anybody| async { Error::NotFound("there is no such path".to_owned()) })
        .method_not_allowed_fallback(|| async { Error::Method })
        .layer(map_response(hide))
        .layer(from_fn_with_state(names, trace))
        .with_state(app)
}

fn limit(routes: MethodRouter<Arc<App>>, time: Duration) -> MethodRouter<Arc<App>> {
    routes.layer(from_fn_with_state(time, within))
}

/// Answers are for who asked: nothing between may keep them unless a handler says otherwise.
async fn hide(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(http::header::CACHE_CONTROL).or_insert(http::HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}
