//! The suite that every backend passes.
//!
//! A case is an `async fn case(store)` on a new, empty store. The files are named after what they test. Every call is given its
//! time, so no case sleeps or reads a clock. A backend runs all cases with
//!
//! ```text
//! async fn open() -> (TempDir, Arc<dyn Store>) { … }   // the first part is dropped after the case
//! windlass_store::conformance!(open);
//! windlass_store::conformance_of_transactions!(open);
//! ```
//!
//! and compares random sequences of calls with the memory store by [`random_sequences::run`]. [`state_table`] tries every event
//! of [`windlass_model::state`] in every state, [`interleave`] every order of a few calls. In [`races`], [`maintenance_races`],
//! [`flow_control_races`] and [`wake_races`], several handles make calls about the same jobs at the same time.

#![expect(missing_docs, reason = "the name of a case says what it expects")]

pub mod alerts;
pub mod bad_input;
pub mod blocks;
pub mod branch_children;
mod branch_kit;
pub mod branch_polls;
pub mod branch_watches;
pub mod branches;
pub mod child_signals;
pub mod child_waits;
pub mod children;
pub mod claim;
pub mod commit;
pub mod control;
pub mod details;
pub mod diagnose;
pub mod flow_control_races;
pub mod fork;
pub mod gate;
pub mod inspect;
pub mod interleave;
pub mod journal;
pub mod kit;
pub mod lease;
pub mod list_times;
pub mod lists;
pub mod lost_children;
pub mod lost_claims;
pub mod machine;
pub mod maintenance_races;
pub mod operations;
pub mod prune;
pub mod pulse;
pub mod races;
pub mod random_sequences;
pub mod rate;
pub mod reap;
pub mod rollups;
pub mod schedule;
pub mod serial;
pub mod signal;
pub mod stage_updates;
pub mod state_table;
pub mod submit;
pub mod timers;
pub mod tokens;
pub mod transactions;
pub mod undecodable;
pub mod unique;
pub mod unreadable_signals;
pub mod unwind;
pub mod users;
pub mod wait;
pub mod wake_races;

/// Makes a test of every case for one backend. `$open` names an async function without arguments that opens
/// a new, empty store and returns `(guard, Arc<dyn Store>)`; the guard is dropped after the case.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance_cases! { $open;
            submit {
                a_new_job_is_ready_and_every_field_is_kept
                a_repeated_submit_is_recognised_by_id_and_digest
                another_input_under_the_same_id_is_refused
                a_key_belongs_to_the_first_job_of_its_kind
                duplicates_within_one_call_are_treated_like_repeats
                keys_and_ids_stay_taken_after_a_job_has_ended
                a_job_due_in_the_past_is_ready_and_one_due_later_is_scheduled
                a_delay_counts_from_the_submit
                the_longest_delay_and_the_latest_time_are_kept
                a_job_claimed_at_submit_belongs_to_its_submitter
                a_scheduled_job_is_not_claimed_at_submit
                a_dead_lapsed_or_unknown_worker_claims_nothing_at_submit
                a_repeated_submit_with_a_claim_returns_the_first_outcome
                a_claim_made_at_submit_can_be_repeated_and_settled
                an_empty_submit_does_nothing
                a_thousand_jobs_are_submitted_in_one_call
            }
            claim {
                jobs_are_claimed_by_rank_across_kinds
                urgent_jobs_are_claimed_first_but_age_overtakes_priority
                jobs_of_equal_rank_are_claimed_in_the_order_of_ids
                only_the_requested_kinds_versions_and_queue_are_claimed
                the_limit_is_kept_and_no_job_is_claimed_twice
                a_claimed_job_has_everything_that_a_worker_needs
                a_repeated_claim_returns_the_same_jobs
                a_repeated_claim_returns_only_jobs_that_are_still_claimed
                a_repeat_of_an_empty_claim_may_claim_jobs
                the_jobs_of_a_claim_can_be_read_until_they_leave_it
                which_claims_still_have_jobs_is_one_read
                settled_claims_are_deleted
                a_dead_or_unknown_worker_claims_nothing
                a_worker_whose_lease_lapsed_claims_nothing_until_it_renews
                suspects_are_reported_and_claimed_only_by_solo_claims
                a_solo_claim_takes_one_suspect_by_rank
                a_retried_suspect_is_an_ordinary_job_again
                a_claim_of_one_job_takes_it_ahead_of_others_and_can_be_repeated
                a_claim_of_one_job_obeys_queues_kinds_pauses_and_flow_control
            }
            rollups {
                what_ends_is_counted_per_minute_queue_and_kind
                a_repeated_or_fenced_commit_counts_nothing
                a_refused_change_counts_nothing_and_its_batch_is_counted
                jobs_that_are_ended_from_outside_are_counted_without_times
                commits_of_many_workers_are_all_counted_while_they_are_summed_up
                a_roll_up_changes_nothing_that_is_read
                old_minutes_become_hours_and_old_hours_are_deleted
                waits_are_counted_for_the_signals_that_ended_them
                names_of_signals_that_contain_ids_are_kept_together
                a_branch_has_the_times_of_its_children
            }
            commit {
                a_done_job_keeps_its_output
                a_failed_job_keeps_its_reason_and_failure
                a_committed_end_is_what_a_read_returns
                every_reason_is_kept
                a_cancelled_attempt_does_not_count
                a_retried_job_is_ready_after_its_delay
                a_job_retried_without_delay_is_ready_at_once
                the_longest_delay_of_a_retry_ends_at_the_latest_time
                an_undecodable_input_counts_no_attempt
                a_repeated_commit_returns_committed_and_writes_nothing
                a_repeated_retry_returns_committed_until_the_next_change
                a_released_claim_is_fenced
                a_reaped_claim_is_fenced
                an_expired_job_is_fenced
                a_retired_claim_is_fenced
                the_same_worker_with_an_older_epoch_is_fenced
                a_stale_rev_is_fenced
                an_unknown_job_is_fenced
                an_output_above_the_limit_is_refused_alone
                five_hundred_mixed_changes_are_committed_in_one_batch
                the_end_of_a_job_removes_its_deadline_timer
                a_lapsed_lease_does_not_fence_a_commit
                the_history_keeps_every_failed_attempt
                failures_are_cleaned_before_they_are_stored
                an_empty_commit_does_nothing
                another_outcome_of_the_same_claim_and_revision_is_fenced
            }
            lease {
                a_worker_is_registered_once
                a_renewal_extends_the_lease
                a_renewal_keeps_what_attempts_report
                a_renewal_reports_that_other_leases_have_lapsed
                a_dead_worker_stays_dead
                a_released_job_keeps_its_rank
                a_release_skips_outdated_claims
                a_released_suspect_stays_a_suspect
                retiring_a_worker_returns_its_jobs_without_counting_attempts
                retiring_twice_or_an_unknown_worker_returns_no_jobs
                a_renewal_settles_claims
                a_renewal_lists_open_claims_which_can_be_released_by_number
                a_renewal_can_end_the_solo_run_of_a_claim
            }
            lost_claims {
                a_lost_claim_commits_nothing
                no_part_of_a_change_of_a_lost_claim_is_written
                a_change_that_another_claim_wrote_is_not_a_repeat
                a_lost_claim_is_distinguished_from_a_later_one_of_the_same_worker
                a_job_of_a_lost_claim_is_reaped_with_the_worker_that_holds_it
                a_repeated_commit_is_recognised_after_its_claim_was_settled
                a_lost_claim_releases_nothing
                a_lost_claim_releases_no_waiting_job
                a_claim_with_running_jobs_is_not_settled
            }
            reap {
                the_jobs_of_a_worker_reported_dead_are_returned
                a_worker_whose_lease_lapsed_is_reaped_only_on_request
                jobs_that_left_their_claim_are_not_returned
                a_reap_is_bounded_and_reports_that_more_is_left
                a_lost_attempt_is_in_the_history
                only_deaths_during_solo_runs_count_and_the_limit_poisons
                a_limit_of_zero_poisons_at_the_first_death_during_a_solo_run
                poisoning_a_job_removes_its_deadline_timer
                claims_of_a_dead_worker_are_refused
                a_settled_claim_is_not_reaped
                reaping_no_worker_does_nothing
                a_reaped_job_keeps_its_rank
            }
            timers {
                timers_fire_in_order_up_to_the_limit
                next_at_is_the_time_of_the_next_timer
                a_scheduled_ready_or_running_job_expires
                a_due_time_and_a_deadline_may_fire_in_the_same_batch
                an_expired_suspect_is_removed_from_its_lane
                a_retried_job_wakes_once
                nothing_changes_before_a_timer_is_due
                an_expiry_adds_no_attempt_to_the_history
            }
            gate {
                a_gate_moves_exactly_when_its_queue_gains_a_job
                the_timer_gate_moves_when_a_timer_is_set
                every_return_of_a_job_moves_the_gate
                calls_that_add_no_ready_job_move_no_gate
                gates_of_unknown_queues_do_not_move
                all_handles_move_and_read_the_same_gate
            }
            diagnose {
                the_first_ready_job_of_each_queue_and_kind_is_reported
                ready_suspects_are_counted_up_to_a_cap
                failures_of_children_are_handled_once_their_branch_is_merged
                a_branch_is_reported_while_its_job_waits_for_it
                a_branch_with_live_children_of_an_ended_job_is_orphaned
            }
            inspect {
                children_are_listed_oldest_first
                workers_are_listed_with_what_they_serve
                queues_report_their_oldest_ready_job
                every_filter_selects_jobs
                machines_are_found_by_stage_and_version
                jobs_without_a_parent_are_found
                counts_obey_the_filter
                pages_are_newest_first_and_do_not_shift_with_new_jobs
                state_counts_add_up
                the_backlog_counts_jobs_and_reports_the_oldest
                workers_are_listed
                job_ends_are_returned_for_each_id
                reads_of_unknown_jobs_are_empty
                a_running_job_names_its_worker
                schema_clock_and_size_can_be_read
            }
            lists {
                jobs_are_found_by_the_beginning_of_their_key
                unsuccessful_jobs_are_found_by_the_class_of_their_error
                jobs_are_found_by_the_time_in_their_ids
                machines_that_wait_or_failed_are_found_by_stage
                a_job_that_stops_waiting_is_no_longer_listed_as_waiting
                any_filter_finds_what_a_comparison_of_all_jobs_finds
                pages_go_on_where_the_last_one_ended_while_jobs_are_submitted
                a_rare_job_among_many_is_found_by_its_kind_tag_or_key
                a_page_that_finds_nothing_says_where_to_go_on
                a_kind_is_listed_after_some_of_its_jobs_were_pruned
                a_machine_is_listed_in_its_new_version
            }
            pulse {
                the_pulse_differs_after_whatever_jobs_do
                the_pulse_differs_after_whatever_people_do
                the_pulse_rests_while_nothing_happens
                the_pulse_has_the_jobs_that_are_asked_for_in_their_order
            }
            details {
                many_summaries_are_read_in_the_order_of_their_ids
                details_say_why_a_job_is_in_its_state
                details_have_the_settings_that_lists_show
                unsuccessful_jobs_are_read_newest_first
                an_unsuccessful_child_names_its_parent_and_its_branch
                parked_jobs_are_read_oldest_first_whatever_their_stage
                the_last_entry_of_a_journal_is_read_without_its_payload
                branches_that_are_not_merged_are_read_newest_first
            }
            operations {
                an_operation_is_recorded_from_its_beginning_to_its_end
                a_request_to_stop_is_returned_by_the_next_update_and_audited
                an_operation_that_records_nothing_for_a_minute_is_interrupted
                operations_are_listed_newest_first_and_pruned
                invalid_operations_are_refused
            }
            schedule {
                a_tick_fires_once_and_the_next_is_reported
                missed_ticks_are_caught_up_according_to_the_policy
                overlap_skip_omits_ticks_while_the_last_job_is_live
                overlap_queue_runs_jobs_one_after_the_other
                overlap_cancel_previous_cancels_the_previous_job
                a_paused_schedule_fires_nothing_and_catches_nothing_up
                a_trigger_fires_now_and_keeps_the_next_tick
                a_repeated_trigger_with_an_id_submits_one_job
                a_changed_schedule_keeps_its_next_tick_unless_the_calendar_changed
                invalid_schedules_are_refused_with_a_reason
                eight_handles_fire_each_tick_once
            }
            machine {
                a_step_continues_under_the_same_claim
                every_claim_of_a_machine_continues_after_its_last_step
                transitions_are_recorded_with_next_stage_and_outcome
                transition_counts_cover_the_newest_jobs
                every_step_resets_attempts_and_retry_counts
                a_retry_keeps_the_data_that_the_step_saved
                a_retry_without_a_failure_adds_no_history
                a_paused_machine_halts_after_its_step
                a_machine_being_cancelled_halts_after_its_step
                a_resumed_machine_does_not_halt
                a_yield_lets_other_jobs_run_first
                a_repeated_step_returns_the_same_outcome
                large_data_is_stored_and_replaced
                an_invalid_step_is_refused_alone
                a_suspect_that_completes_a_step_is_an_ordinary_job
            }
            stage_updates {
                a_ready_machine_is_claimed_in_its_new_version
                other_handles_claim_a_machine_in_its_new_version
                a_parked_machine_stays_parked_and_wakes_in_its_new_version
                a_machine_that_is_in_line_paused_or_scheduled_stays_so
                a_failed_machine_can_be_updated_and_retried
                a_running_done_or_changed_machine_is_not_updated
                a_stage_update_is_in_the_audit_log
                an_invalid_stage_update_refuses_the_call
            }
            signal {
                a_signal_wakes_a_parked_job
                a_signal_sent_before_the_wait_ends_it_at_once
                a_signal_is_delivered_once
                a_signal_of_another_name_stays_in_the_inbox
                a_wait_for_any_signal_ends_with_the_first
                a_wait_for_all_signals_ends_with_the_last
                a_wait_may_select_every_signal_of_a_name
                a_full_inbox_refuses_signals
                ended_and_unknown_jobs_accept_no_signals
                an_invalid_signal_refuses_the_call
                a_signal_during_a_step_is_not_lost
                signals_are_consumed_only_by_committed_steps
                a_job_may_be_submitted_with_signals
                pruning_a_job_deletes_its_signals
            }
            unreadable_signals {
                an_unreadable_signal_does_not_end_a_wait
                the_next_signal_of_the_name_ends_the_wait
                a_wait_for_several_signals_counts_readable_ones_only
                a_wait_times_out_despite_an_unreadable_signal
                only_a_committed_change_marks_signals_unreadable
                unreadable_signals_do_not_fill_the_inbox
                a_signal_is_dropped_by_hand
                a_signal_is_restored_by_hand
                a_restored_signal_of_an_ended_job_is_given_to_its_retry
                the_number_of_a_signal_is_never_used_again
                a_dropped_signal_is_delivered_to_no_claim
            }
            wait {
                a_job_paused_while_parked_is_held_when_it_wakes
                a_parked_job_can_be_cancelled_and_retried
                a_parked_job_expires
                a_job_that_parks_while_being_cancelled_is_ended
                a_parked_job_frees_its_serial_slot
                a_parked_job_with_keep_slot_keeps_its_serial_slot
                a_wait_that_ends_at_once_keeps_the_serial_slot
                a_parked_job_keeps_its_unique_name
                holds_report_what_a_parked_job_waits_for
                a_priority_set_while_parked_applies_when_the_job_wakes
                a_repair_finds_no_parked_job_to_wake
                a_timeout_wakes_a_parked_job
                a_signal_before_the_timeout_removes_the_timer
            }
            child_waits {
                a_parent_is_woken_when_its_last_child_ends
                a_child_counts_as_ended_however_it_ends
                a_parent_may_end_in_the_batch_that_wakes_it
                a_wait_for_no_children_ends_at_once
                a_wait_is_for_the_children_of_its_own_step
                children_that_ended_before_the_wait_end_it_at_once
                a_wait_for_children_may_time_out
                a_retried_child_is_waited_for_again
                a_child_that_retries_or_parks_has_not_ended
                grandchildren_wake_only_their_own_parent
                one_batch_may_end_all_children
            }
            children {
                children_that_are_not_put_in_are_not_waited_for
                live_children_of_a_wait_are_listed_newest_first
                a_child_does_not_take_the_unique_name_of_its_parent
                a_fenced_step_spawns_nothing
                the_ends_of_children_are_listed
                ended_children_are_kept_until_their_parent_ends
                children_of_an_ended_parent_still_run
                delays_serial_keys_and_signals_apply_to_children
                a_step_may_end_a_wait_and_spawn_the_next_children
                children_whose_inputs_together_exceed_the_limit_are_refused
            }
            journal {
                every_outcome_writes_its_entries
                a_step_without_a_stage_keeps_the_stage
                a_partial_step_keeps_attempts_and_retry_counts
                entries_are_read_in_order_and_in_pages
                sizes_are_read_without_payloads_and_the_end_without_results
                a_thousand_entries_are_written_and_read_at_once
                every_field_of_an_entry_is_kept
                a_step_may_forget_entries
                continue_as_new_clears_the_journal
                a_fenced_change_writes_no_entries
                a_repeated_change_writes_its_entries_once
                an_entry_number_is_used_once
                a_context_keeps_the_last_value_of_each_name
                an_invalid_entry_or_context_is_refused_alone
                a_step_that_halts_writes_its_entries
                later_claims_find_the_journal
                pruning_a_job_deletes_its_journal
            }
            child_signals {
                a_parked_parent_is_woken_by_the_end_of_a_child
                a_signal_sent_before_the_wait_is_not_lost
                one_batch_may_end_a_child_and_park_its_parent
                one_batch_may_end_a_child_and_its_parent
                a_child_sends_a_signal_however_it_ends
                a_child_that_retries_parks_or_is_released_sends_no_signal
                a_retried_child_sends_a_signal_again
                an_ended_parent_gets_no_signal
                a_full_inbox_still_takes_the_signals_of_children
                nobody_else_may_send_the_signal_of_a_child
                children_that_send_signals_are_not_counted_by_a_wait
                a_parent_that_waits_for_another_signal_too_stays_parked
                a_paused_parent_is_not_claimed_when_a_child_ends
                children_that_are_not_put_in_send_no_signal
            }
            branches {
                one_change_opens_a_branch_spawns_its_children_and_seals_it
                many_changes_spawn_children_in_one_branch
                a_branch_counts_its_children_however_they_end
                the_ends_of_a_batch_are_counted_per_branch
                a_child_that_retries_waits_or_steps_counts_as_started_and_not_ended
                a_retry_takes_a_child_out_of_the_counts
                a_repeated_commit_counts_nothing_twice
                a_fenced_change_counts_nothing
                a_refused_change_of_a_batch_counts_nothing
                an_invalid_branch_update_is_refused_alone
                an_invalid_branch_child_is_refused
            }
            branch_children {
                branches_of_two_jobs_with_the_same_number_are_separate
                live_children_of_a_branch_are_listed_newest_first
                ranges_of_a_branch_are_read
                children_in_and_outside_a_branch_are_counted_separately
                a_child_in_a_branch_may_open_a_branch
                flow_control_applies_to_children_in_a_branch
                a_child_shows_its_position_in_its_branch
                children_in_a_branch_are_listed_in_pages
                a_page_of_children_is_bounded_in_what_it_examines_and_in_bytes
                children_are_found_by_their_items
                pruning_a_job_deletes_its_branches
                a_fork_has_no_branches
            }
            branch_watches {
                a_parked_parent_is_woken_when_its_watch_is_met
                a_watch_that_is_already_met_sends_its_signal_at_once
                a_watch_that_is_met_before_the_park_ends_the_wait_at_once
                one_batch_may_meet_a_watch_and_park_the_parent
                a_watch_for_no_children_is_met_at_once
                a_new_watch_replaces_the_one_before
                a_repeated_commit_sends_no_second_signal
                a_retried_child_does_not_undo_a_watch_that_was_met
                expired_and_cancelled_children_meet_a_watch
                the_signals_of_two_branches_name_their_branches
                the_watches_of_an_ended_parent_are_deleted
                a_paused_parent_gets_the_signal_and_stays_paused
                a_full_inbox_still_takes_the_signal_of_a_branch
                nobody_else_may_send_the_signal_of_a_branch
                a_watch_moves_the_timer_gate
            }
            blocks {
                a_block_reports_its_items_done_in_parts
                the_next_claim_of_a_block_has_the_number_of_items_left
                promoted_items_stay_in_the_branch
                items_may_be_promoted_in_a_sealed_branch
                a_failed_block_counts_its_remaining_items_as_failed
                a_cancelled_block_counts_its_remaining_items_as_cancelled
                a_block_that_never_ran_counts_all_its_items
                items_of_a_block_meet_a_watch
                a_fenced_block_counts_nothing
                invalid_items_of_a_block_are_refused
                a_promoted_item_keeps_the_attempt_that_failed_in_its_block
                an_item_that_failed_in_its_block_meets_a_watch
                a_fenced_block_records_no_attempts
                an_invalid_first_attempt_is_refused
            }
            branch_polls {
                the_poll_interval_follows_the_progress_of_a_branch
                a_poll_takes_no_more_branches_than_its_limit
                a_poll_redelivers_no_healthy_child
                a_branch_is_polled_until_its_watch_is_met
                a_merged_branch_is_not_polled
                the_children_of_a_cancelled_parent_are_to_be_cancelled
                the_children_of_an_expired_parent_are_to_be_cancelled
                a_parent_that_ends_itself_cancels_its_children_only_if_it_is_cancelled
                a_step_may_cancel_the_children_of_a_branch
                a_branch_whose_children_are_cancelled_may_be_watched
                a_poll_counts_the_items_of_blocks
                a_branch_of_parked_children_is_polled_rarely
            }
            unwind {
                an_unwind_is_not_ended_by_an_earlier_cancel_or_deadline
                a_job_that_is_not_running_is_unwound_when_it_is_cancelled
                a_job_with_nothing_to_undo_ends_at_once
                a_second_cancel_ends_a_job_without_its_unwind
                a_running_job_is_unwound_when_the_grace_period_is_over
                a_cancel_during_the_unwind_ends_the_job_after_its_grace_period
                a_job_that_halts_for_a_cancel_is_unwound_after_the_grace_period
                a_deadline_unwinds_a_job_once
                a_poisoned_job_is_unwound
                a_job_that_is_poisoned_during_its_unwind_ends
                a_replaced_job_is_unwound
                a_cancel_unwinds_a_paused_job_and_ends_its_pause
                a_job_is_unwound_when_its_serial_key_is_free
                a_running_job_keeps_its_serial_key_for_the_unwind
                a_retried_job_may_be_unwound_again
                an_attempt_may_start_its_own_unwind
                every_outcome_may_record_an_undo
                a_parent_is_notified_after_the_unwind_of_its_child
            }
            fork {
                a_fork_continues_from_an_entry_or_the_end
                a_job_without_a_journal_is_forked_from_its_beginning
                a_fork_before_an_entry_that_does_not_exist_is_refused
                a_repeated_fork_creates_one_job
                a_fork_with_a_taken_key_is_refused
                a_fork_copies_the_job_without_key_name_deadline_signals_and_context
                a_job_in_any_state_can_be_forked
                a_fork_of_a_job_with_a_serial_key_waits_in_line
                a_fork_moves_the_gate_and_other_handles_find_it
            }
            interleave {
                signals_a_wait_and_its_timeout_in_every_order
                signals_a_wait_its_timeout_and_a_claim_in_every_order
                repeated_signals_and_commits_in_every_order
                signals_a_wait_and_the_reaping_of_its_worker_in_every_order
            }
            state_table { every_event_in_every_state }
            bad_input {
                every_exceeded_limit_is_an_error_with_a_reason
                one_invalid_job_refuses_the_call
                values_at_the_limits_are_accepted
                unusual_text_and_bytes_are_returned_unchanged
                a_claim_of_unknown_kinds_or_queues_is_empty
            }
            serial {
                jobs_of_a_key_run_one_at_a_time_in_the_order_they_became_due
                priority_does_not_reorder_a_line
                the_position_in_line_is_the_time_when_a_job_is_due
                a_key_runs_as_many_jobs_as_it_has_slots
                keys_are_independent_and_span_queues_and_kinds
                the_commit_that_frees_a_slot_gives_it_to_the_next_job
                every_other_end_and_every_pause_frees_the_slot
                a_retried_job_keeps_its_position_in_line
                a_retry_without_delay_keeps_its_slot
                a_job_with_keep_slot_keeps_it_while_it_waits_for_its_retry
                released_and_reaped_jobs_keep_their_slots
                more_slots_admit_more_jobs_and_fewer_slots_end_none
                the_newest_submit_sets_the_slots_even_if_it_is_a_repeat
                a_job_in_line_is_ready_and_reports_who_is_ahead
                jobs_leave_the_line_when_they_end
                a_job_with_a_serial_key_is_not_claimed_at_submit
                a_repair_finds_nothing_to_do
            }
            unique {
                keep_returns_the_job_that_holds_the_name
                reject_writes_nothing
                replace_cancels_a_job_that_does_not_run
                replace_does_not_cancel_a_running_job
                cancel_and_replace_requests_the_cancel_of_a_running_job
                a_name_belongs_to_a_kind
                the_scope_decides_in_which_states_a_job_holds_its_name
                a_name_is_held_no_longer_than_its_time
                ids_and_keys_are_checked_before_names
                names_within_one_call_are_taken_in_order
                a_job_with_a_unique_name_is_not_claimed_at_submit
                a_failed_job_is_not_retried_while_another_holds_its_name
                a_kept_job_is_pruned_only_after_it_no_longer_holds_its_name
            }
            rate {
                no_more_jobs_start_than_the_bucket_pays_for
                jobs_are_claimed_by_rank_and_heavy_ones_are_not_overtaken
                an_idle_bucket_fills_up_to_its_burst
                refill_at_is_exact
                jobs_without_a_limit_are_claimed_while_a_bucket_is_empty
                a_bucket_is_shared_by_queues_and_kinds
                a_changed_limit_applies_at_once
                a_lifted_limit_charges_nothing_until_it_is_set_again
                an_unknown_limit_and_a_weight_above_the_burst_are_refused
                a_job_heavier_than_a_lowered_burst_starts_when_the_bucket_is_full
                a_repeated_claim_is_charged_once_and_every_new_start_again
                suspects_are_charged_too
                limits_set_by_one_handle_apply_to_others
                holds_report_the_limit_of_a_throttled_job
            }
            control {
                a_paused_job_is_not_claimed_until_it_is_resumed
                a_paused_scheduled_job_is_held_when_it_is_due
                a_paused_running_job_continues_and_is_held_when_it_is_returned
                a_paused_job_leaves_its_line_and_resumes_at_its_position
                paused_jobs_expire_and_can_be_cancelled
                nothing_is_claimed_from_a_paused_queue
                a_queue_may_be_paused_before_it_is_used
                jobs_that_do_not_run_are_cancelled_at_once
                a_running_job_gets_a_cancel_request_and_may_finish_in_time
                a_job_that_ignores_its_cancel_request_is_ended
                a_job_being_cancelled_is_not_claimed_again
                a_deadline_ends_a_job_being_cancelled
                a_retry_by_hand_resets_the_job
                a_retried_job_goes_to_the_end_of_its_line
                done_and_live_jobs_are_not_retried
                a_new_priority_reorders_ready_jobs_and_is_kept_for_others
                every_action_is_in_the_audit_log
                invalid_actions_are_refused_before_anything_is_written
                no_job_of_a_paused_queue_is_claimed_at_submit
            }
            prune {
                jobs_are_pruned_by_state_and_age
                a_prune_is_bounded_and_continues_where_the_last_one_stopped
                only_jobs_of_the_named_kind_are_pruned
                nothing_is_left_of_a_pruned_job
                a_child_of_a_live_parent_is_kept
                a_child_of_a_parent_that_may_be_retried_is_kept
                children_are_pruned_after_their_parent
            }
            maintenance_races {
                a_claim_racing_a_reap_leaves_no_job_stuck
                a_claim_at_submit_racing_a_reap_leaves_no_job_stuck
                a_commit_racing_a_reap_has_one_winner
                a_commit_racing_a_release_has_one_winner
                a_commit_racing_an_expiry_has_one_winner
                an_expiry_racing_a_return_leaves_no_ready_row_and_no_timer
                a_due_time_racing_an_expiry_leaves_no_ready_row_and_no_timer
                a_retirement_racing_a_reap_returns_each_job_once
            }
            tokens {
                a_token_is_kept_with_everything_but_its_secret
                the_name_of_a_token_stays_taken
                a_revoked_token_says_so_and_stays_listed
                the_use_of_a_token_is_recorded_at_most_once_per_span
                tokens_with_bad_names_are_refused
                a_worker_belongs_to_the_token_that_registered_it
            }
            users {
                a_user_is_kept_with_everything_but_the_password
                names_of_users_and_tokens_stay_taken
                every_change_of_a_user_is_in_the_audit_log
                users_that_cannot_be_kept_are_refused
                a_session_says_who_its_user_is
                only_the_checked_password_of_an_enabled_user_makes_a_session
                no_session_outlives_a_change_of_its_user
                a_session_is_lengthened_by_its_use_up_to_its_maximum_age
                sessions_end_one_by_one_or_all_at_once
                expired_sessions_are_pruned_in_batches
                a_log_in_racing_a_new_password_leaves_no_session
                of_eight_users_and_tokens_of_one_name_one_is_added
            }
            alerts {
                an_alert_is_kept_as_it_is_written
                a_change_follows_the_number_that_it_knows
                a_message_is_a_job_of_a_reserved_kind_that_workers_claim
                a_message_with_a_known_key_is_submitted_once
                a_resolved_alert_is_kept_and_replaced_when_it_comes_back
                an_alert_stays_open_until_a_message_says_that_it_is_resolved
                of_many_writers_one_records_a_change
                mutes_are_kept_until_they_end
                a_test_message_is_a_job_and_in_the_audit_log
                old_alerts_and_mutes_are_pruned
                alerts_with_bad_names_are_refused
                the_latest_ticks_that_schedules_missed_are_read_at_once
            }
            races {
                eight_claimers_claim_each_job_once
                eight_submitters_create_one_job_per_key
                eight_submitters_of_the_same_ids_create_each_job_once
                two_reapers_return_each_job_once
                two_concurrent_retirements_return_each_job_once
                eight_timekeepers_fire_each_timer_once
                two_concurrent_identical_commits_write_once
                two_concurrent_identical_claims_claim_once
                concurrent_calls_of_all_kinds_lose_no_job
            }
            wake_races {
                a_job_that_parks_while_signals_arrive_is_woken
                a_wait_for_two_signals_is_ended_by_one_of_two_senders
                a_signal_and_the_timeout_of_its_wait_wake_a_job_once
                a_parent_that_parks_while_its_children_end_is_woken
                a_child_that_ends_while_it_is_cancelled_counts_once
                a_parent_that_parks_while_its_branch_ends_is_woken_once
                concurrent_ends_retries_and_cancels_of_a_child_are_counted_once
                concurrent_polls_poll_each_branch_once
            }
            flow_control_races {
                jobs_of_one_serial_key_from_eight_submitters_run_one_at_a_time
                jobs_of_one_serial_key_from_eight_submitters_run_in_order
                eight_workers_run_at_most_three_jobs_of_a_key_with_three_slots
                eight_submitters_of_one_unique_name_create_one_job
                eight_replacers_of_one_unique_name_leave_one_job
                eight_claimers_share_one_bucket
                a_commit_racing_a_cancel_has_one_winner
                a_pause_racing_a_claim_leaves_the_job_running_or_held
            }
        }
    };
}

/// The same for the cases of transactions of callers. They are apart because their statements run with the settings of the
/// caller's role, and not with those of the store: a role that ends idle transactions soon ends these.
#[macro_export]
macro_rules! conformance_of_transactions {
    ($open:ident) => {
        $crate::conformance_cases! { $open;
            transactions {
                a_transaction_is_committed_with_its_change_or_not_at_all
                every_type_returns_as_it_was
                placeholders_are_found_by_their_numbers
                parameters_that_do_not_fit_are_refused
                execute_returns_how_many_rows_were_changed
                a_failed_statement_loses_the_whole_transaction
                a_transaction_cannot_be_ended_by_its_statements
                a_panic_of_a_transaction_rolls_back_and_is_resumed
                a_transaction_that_is_kept_is_rolled_back_and_useless
                a_transaction_whose_call_is_dropped_leaves_nothing
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($open:ident; $($file:ident { $($case:ident)* })*) => {$(
        mod $file {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (_keep, store) = super::$open().await;
                    $crate::conformance::$file::$case(std::sync::Arc::clone(&store)).await;
                    $crate::conformance::kit::expect_right_counts(&store).await;
                }
            )*
        }
    )*};
}

#[cfg(test)]
mod tests {
    /// A case that is not listed is never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("mod.rs");
        let files = [
            include_str!("submit.rs"),
            include_str!("claim.rs"),
            include_str!("commit.rs"),
            include_str!("lease.rs"),
            include_str!("reap.rs"),
            include_str!("rollups.rs"),
            include_str!("timers.rs"),
            include_str!("tokens.rs"),
            include_str!("alerts.rs"),
            include_str!("gate.rs"),
            include_str!("diagnose.rs"),
            include_str!("inspect.rs"),
            include_str!("lists.rs"),
            include_str!("pulse.rs"),
            include_str!("details.rs"),
            include_str!("operations.rs"),
            include_str!("state_table.rs"),
            include_str!("bad_input.rs"),
            include_str!("serial.rs"),
            include_str!("unique.rs"),
            include_str!("rate.rs"),
            include_str!("control.rs"),
            include_str!("prune.rs"),
            include_str!("maintenance_races.rs"),
            include_str!("races.rs"),
            include_str!("schedule.rs"),
            include_str!("flow_control_races.rs"),
            include_str!("wake_races.rs"),
            include_str!("machine.rs"),
            include_str!("stage_updates.rs"),
            include_str!("signal.rs"),
            include_str!("unreadable_signals.rs"),
            include_str!("wait.rs"),
            include_str!("child_waits.rs"),
            include_str!("children.rs"),
            include_str!("journal.rs"),
            include_str!("child_signals.rs"),
            include_str!("branches.rs"),
            include_str!("branch_children.rs"),
            include_str!("branch_watches.rs"),
            include_str!("blocks.rs"),
            include_str!("branch_polls.rs"),
            include_str!("unwind.rs"),
            include_str!("users.rs"),
            include_str!("fork.rs"),
            include_str!("interleave.rs"),
            include_str!("lost_claims.rs"),
            include_str!("transactions.rs"),
        ];
        for line in files.iter().flat_map(|file| file.lines()) {
            let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            let listed = list.split_whitespace().any(|word| word == name);
            assert!(listed, "the case {name} is missing from the list in conformance!");
        }
    }
}
