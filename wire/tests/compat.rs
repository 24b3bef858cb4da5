//! Samples of every body ever shipped: each must remain readable and serialize to the same text.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::{admin, audit, inspect, participant, problem};

/// Reads the sample, writes it again and compares: a renamed, removed or newly required field fails here.
fn check<T: DeserializeOwned + Serialize>(name: &str, seen: &mut Vec<String>) {
    let path = format!("{}/tests/compat/v1/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let sample: Value = serde_json::from_str(&text).unwrap();
    let body: T = serde_json::from_value(sample.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(serde_json::to_value(&body).unwrap(), sample, "{name} is written differently");
    seen.push(format!("{name}.json"));
}

#[test]
fn every_body_of_version_1_is_still_read() {
    let mut seen = Vec::new();
    check::<participant::EnrollRequest>("enroll_request", &mut seen);
    check::<participant::EnrollReply>("enroll_reply", &mut seen);
    check::<participant::RenewRequest>("renew_request", &mut seen);
    check::<participant::CheckInRequest>("check_in_request", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_assigned", &mut seen);
    check::<participant::CheckInRequest>("check_in_request_with_keys", &mut seen);
    check::<participant::CheckInRequest>("check_in_request_with_loss", &mut seen);
    check::<participant::CheckInRequest>("check_in_request_with_round_trip", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_assigned_secure", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_invited", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_come_back", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_come_back_waiting", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_come_back_until", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_task_over", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_task_over_model", &mut seen);
    check::<participant::CheckInRequest>("check_in_request_with_training", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_train", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_discard", &mut seen);
    check::<participant::CheckInReply>("check_in_reply_assigned_update", &mut seen);
    check::<participant::AbandonRequest>("abandon_request", &mut seen);
    check::<participant::AbandonRequest>("abandon_request_refused", &mut seen);
    check::<participant::Receipt>("receipt", &mut seen);
    check::<participant::UploadManifest>("upload_manifest", &mut seen);
    check::<participant::UploadReply>("upload_reply_missing", &mut seen);
    check::<participant::UploadReply>("upload_reply_accepted", &mut seen);
    check::<admin::CreateTask>("create_task", &mut seen);
    check::<admin::CheckedTask>("checked_task", &mut seen);
    check::<admin::CreateEnrollmentToken>("create_enrollment_token", &mut seen);
    check::<admin::EnrollmentTokenReply>("enrollment_token_reply", &mut seen);
    check::<admin::CreateOperatorToken>("create_operator_token", &mut seen);
    check::<admin::CreateOperatorToken>("create_operator_token_limited", &mut seen);
    check::<admin::OperatorTokenReply>("operator_token_reply", &mut seen);
    check::<admin::OperatorTokenReply>("operator_token_reply_limited", &mut seen);
    check::<admin::OperatorTokenView>("operator_token_view", &mut seen);
    check::<admin::OperatorTokenView>("operator_token_view_limited", &mut seen);
    check::<admin::CreateSignIn>("create_sign_in", &mut seen);
    check::<admin::SignInView>("sign_in_view", &mut seen);
    check::<admin::SignInView>("sign_in_view_limited", &mut seen);
    check::<admin::SignInView>("sign_in_view_identity", &mut seen);
    check::<admin::SignInWays>("sign_in_ways", &mut seen);
    check::<admin::AuthorizationView>("authorization_view", &mut seen);
    check::<inspect::Page<inspect::PresetView>>("preset_page", &mut seen);
    check::<inspect::Page<inspect::TaskSummary>>("task_page", &mut seen);
    check::<inspect::TaskView>("task_view", &mut seen);
    check::<inspect::TaskView>("task_view_waiting", &mut seen);
    check::<inspect::TaskView>("task_view_forfeited", &mut seen);
    check::<inspect::RoundView>("round_view", &mut seen);
    check::<inspect::RoundView>("round_view_buffer", &mut seen);
    check::<inspect::RoundView>("round_view_devices", &mut seen);
    check::<inspect::AssignmentView>("assignment_view", &mut seen);
    check::<inspect::ModelView>("model_view", &mut seen);
    check::<inspect::ParticipantView>("participant_view", &mut seen);
    check::<inspect::DeviceView>("device_view", &mut seen);
    check::<inspect::ServerReport>("server_report", &mut seen);
    check::<inspect::ServerView>("server_view", &mut seen);
    check::<audit::EventView>("event_view", &mut seen);
    check::<audit::EventView>("event_view_identity", &mut seen);
    check::<audit::AuditKeyView>("audit_key_view", &mut seen);
    check::<problem::Problem>("problem", &mut seen);

    let folder = format!("{}/tests/compat/v1", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    seen.sort();
    assert_eq!(files, seen, "every sample is checked");
}

#[test]
fn unknown_keys_of_replies_are_ignored() {
    // As read by a participant without support for final models.
    let reply = r#"{"kind":"task_over","task":"0190b5a0-0000-7000-8000-000000000001","later":{"version":3}}"#;
    let reply: participant::CheckInReply = serde_json::from_str(reply).unwrap();
    assert!(matches!(reply, participant::CheckInReply::TaskOver { model: None, .. }));
}

#[test]
fn unknown_keys_of_requests_are_refused() {
    let error = serde_json::from_str::<participant::CheckInRequest>(r#"{"examples":1,"exmples":2}"#).unwrap_err();
    assert!(error.to_string().contains("exmples"), "{error}");
    let loss = r#"{"examples":1,"loss":{"task":"0190b5a0-0000-7000-8000-000000000001","level":32}}"#;
    let error = serde_json::from_str::<participant::CheckInRequest>(loss).unwrap_err();
    assert!(error.to_string().contains("from 0 to 31"), "{error}");
}
