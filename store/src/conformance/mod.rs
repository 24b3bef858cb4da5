//! The suite that every database and every blob store must pass (feature "conformance").
//!
//! Each function checks one guarantee on a fresh store and panics if it is broken. [`conformance_tests!`] turns each
//! into a test, so that a further backend (PostgreSQL, S3) only needs a function that opens it.
//!
//! [`conformance_tests!`]: crate::conformance_tests

#![expect(clippy::unwrap_used, reason = "a suite of tests says what is broken by panicking")]

/// Asserts that a single change is rejected as a conflict: `refused!(store, |tx| tx.insert_round(round))`. It has a
/// transaction of its own: after an error PostgreSQL rejects further statements.
macro_rules! refused {
    ($store:expr, |$tx:ident| $change:expr) => {{
        let result: crate::Result<()> =
            $store.transact("test", |$tx| Box::pin(async move { $change.await.map(drop) })).await;
        assert!(matches!(result, Err(crate::StoreError::Conflict(_))), "{}: {result:?}", stringify!($change));
    }};
}

pub mod admitted;
pub mod assignment;
pub mod batch;
pub mod blob;
pub mod blob_reference;
pub mod census;
pub mod check_in;
pub mod concurrency;
pub mod consistency;
pub mod device;
pub mod doomed;
pub mod event;
pub mod fingerprint;
pub mod idempotency;
pub mod lease;
pub mod model_server;
pub mod model_upload;
pub mod model_version;
pub mod open_task;
pub mod participant;
pub mod privacy_ledger;
pub mod provenance;
pub mod round;
pub mod round_summary;
pub mod sampled;
pub mod schema;
pub mod secret;
pub mod secure_round;
pub mod session;
pub mod session_message;
pub mod sign_in;
pub mod standing;
pub mod sum;
pub mod task;
pub mod token;
pub mod training;
pub mod transaction;
pub mod upload;
pub mod used_nonce;

mod sample;

pub use self::sample::NOW;

/// Generates a test for every guarantee: `conformance_tests!(open)`, where `open` is an async function that returns a
/// fresh store and a value that must outlive it, or `None` where the database is absent, which it has said then.
#[macro_export]
macro_rules! conformance_tests {
    ($open:path) => {
        $crate::conformance_tests!(@each $open,
            admitted::an_input_counts_once,
            admitted::records_below_belong_to_folded_inputs,
            admitted::inputs_are_folded_once_and_in_order,
            admitted::inputs_are_given_scores,
            assignment::a_cohort_is_drawn_and_listed,
            assignment::a_page_of_a_cohort_has_names_inputs_scores_and_histories,
            assignment::states_change_by_compare_and_swap_with_history,
            assignment::the_last_round_that_counted_is_found,
            assignment::participants_that_refuse_are_found,
            assignment::pending_ones_are_found_closed_and_revoked,
            assignment::who_drops_out_is_recorded_with_the_state_of_the_round,
            batch::draws_go_from_offers_to_one_end,
            batch::offers_are_replaced_and_revealed_once,
            batch::failed_draws_name_those_who_did_not_reveal,
            batch::batches_of_a_cohort_are_counted,
            batch::excluded_inputs_are_late,
            batch::check_ins_report_batches,
            blob::bytes_come_back_and_are_verified,
            blob::a_writer_keeps_all_or_nothing,
            blob::a_blob_is_read_piece_by_piece,
            blob::blobs_are_deleted_and_listed_by_age,
            blob_reference::needed_blobs_are_named_and_no_others,
            blob_reference::states_of_superseded_versions_are_not_needed,
            blob_reference::blobs_are_needed_in_every_state_that_has_not_ended,
            census::what_is_there_is_counted,
            check_in::keys_are_taken_back_from_whoever_waits,
            check_in::whoever_refuses_is_counted_and_no_candidate,
            check_in::candidates_are_those_ready_with_their_history,
            check_in::candidates_come_with_their_loss_and_speed,
            check_in::check_ins_are_replaced_removed_and_expire,
            check_in::check_ins_are_renewed_only_where_they_are,
            check_in::check_ins_tell_of_slow_lines_and_lost_rounds,
            check_in::check_ins_end_unless_there_is_a_newer_one,
            check_in::keys_stay_until_newer_ones_come,
            concurrency::writers_take_turns_and_lose_nothing,
            concurrency::one_of_two_takes_the_lease_and_an_expired_one_is_free,
            concurrency::a_reader_sees_one_state,
            concurrency::a_round_is_moved_by_one_of_two,
            consistency::rules_that_are_broken_are_found,
            device::devices_are_told_apart_by_their_coordinators,
            device::devices_are_narrowed_down,
            device::rounds_of_a_device_are_found,
            device::sums_of_one_moment_have_an_order,
            doomed::no_row_names_a_doomed_blob,
            doomed::what_is_stored_during_its_removal_is_stored_once_more,
            doomed::a_blob_that_was_spared_is_named_when_that_is_known,
            doomed::dooms_are_found_again_and_forgotten,
            doomed::naming_and_dooming_take_turns,
            event::a_change_is_an_event_of_its_transaction,
            event::events_are_listed_after_a_position_and_filtered,
            event::events_are_found_by_who_and_when,
            event::events_of_an_actor_are_found_by_an_index,
            event::an_event_gets_one_position,
            event::an_event_is_never_changed,
            event::heads_are_kept,
            fingerprint::the_first_fingerprint_stays,
            idempotency::an_answer_is_found_again_until_it_expires,
            lease::a_lease_is_held_renewed_and_released,
            lease::no_two_acquisitions_of_a_lease_have_one_token,
            lease::a_clock_set_back_does_not_make_a_lease_immortal,
            model_server::a_server_counts_until_it_leaves_or_is_silent,
            model_server::servers_of_a_task_are_bounded,
            model_version::versions_are_added_and_listed,
            model_version::a_clipping_norm_comes_back_or_is_refused,
            model_version::a_version_is_wanted_for_the_attempt_that_starts_from_it,
            model_version::old_versions_are_removed_unless_they_are_needed,
            open_task::open_tasks_are_those_with_work,
            open_task::a_round_that_selects_is_told_to_those_it_may_draw,
            participant::participants_are_found_by_id_and_name,
            participant::a_renewal_keeps_the_previous_certificate,
            participant::revoking_happens_once,
            participant::participants_are_narrowed_down,
            privacy_ledger::a_ledger_grows_at_its_end_alone,
            privacy_ledger::each_task_has_its_ledger,
            privacy_ledger::the_head_is_replaced_together_with_its_row,
            privacy_ledger::of_two_who_charge_at_once_one_has_to_look_again,
            provenance::a_record_belongs_to_its_version_and_may_be_signed_again,
            round::a_task_has_one_open_round,
            round::transitions_are_compare_and_swap_with_history,
            round::results_and_bytes_are_recorded,
            round::the_latest_attempts_are_listed,
            round_summary::each_attempt_is_counted_by_itself,
            round_summary::what_an_attempt_made_and_cost_is_found,
            round_summary::the_rounds_of_a_task_are_added_up,
            sampled::the_population_is_counted_in_the_order_of_enrolment,
            sampled::a_draw_is_kept_until_it_is_forgotten,
            schema::it_goes_down_and_up_again,
            secret::the_first_secret_stays_until_it_is_forgotten,
            secret::a_secret_is_bounded,
            secure_round::a_round_is_open_in_every_phase_and_history_counts_answers,
            secure_round::each_phase_waits_for_those_who_have_not_answered,
            secure_round::the_missing_drop_out_in_their_phase,
            secure_round::groups_are_counted_and_left_out_on_their_own,
            secure_round::a_participant_is_needed_until_it_has_answered_everything,
            secure_round::a_revoked_participant_is_waited_for_no_more,
            session::a_session_is_replaced_and_deleted,
            session_message::a_message_counts_once,
            session_message::messages_are_listed_and_counted_by_kind,
            session_message::a_cleared_message_was_still_sent,
            sign_in::a_sign_in_counts_until_it_ends,
            sign_in::the_oldest_sign_ins_of_a_token_go_first,
            sign_in::a_sign_in_may_be_of_an_identity,
            standing::everybody_asked_for_is_told_in_order,
            standing::places_change_together,
            sum::a_partial_sum_is_replaced_by_compare_and_swap,
            sum::a_round_has_one_noised_sum,
            sum::what_a_sum_took_is_kept,
            task::a_name_is_free_again_once_its_task_is_over,
            task::status_changes_by_compare_and_swap_with_history,
            task::tasks_are_listed_newest_first,
            task::forfeited_rounds_are_counted,
            token::an_enrollment_token_is_used_once,
            token::an_enrollment_token_is_revoked_while_unused,
            token::operator_tokens_are_found_listed_and_revoked,
            token::an_operator_token_keeps_its_limits,
            training::a_training_takes_the_place_of_the_one_before,
            training::an_update_is_aggregated_once,
            transaction::an_error_or_a_drop_leaves_nothing,
            transaction::a_read_refuses_changes,
            transaction::a_full_disk_is_told_and_survived,
            transaction::a_closure_may_borrow,
            upload::the_first_announced_input_counts,
            upload::parts_are_needed_until_their_input_is_folded_or_its_round_has_ended,
            upload::no_upload_names_a_doomed_blob,
            model_upload::uploaded_models_are_needed_until_they_expire,
            used_nonce::a_nonce_is_used_once,
            used_nonce::of_many_at_once_one_uses_a_nonce,
        );
    };
    (@each $open:path, $($module:ident :: $promise:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let Some((store, _keep)) = $open().await else { return };
                $crate::conformance::$module::$promise(&store).await;
            }
        )*
    };
}
