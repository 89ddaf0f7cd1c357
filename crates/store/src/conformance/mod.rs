//! The suite that every backend passes.
//!
//! A case is a plain `async fn case(store)` on a fresh, empty store; the files are named after the verbs.
//! Every verb is given its moment, so no case sleeps or looks at a clock. A backend runs all of them with
//!
//! ```text
//! async fn open() -> (TempDir, Arc<dyn Store>) { … }   // the first part is kept until the case is over
//! windlass_store::conformance!(open);
//! ```
//!
//! and random sequences against the memory store with [`agree::random`], after those that a store once failed ([`kept`]). Some files are special: [`table`]
//! tries every pair of state and event of [`windlass_model::state`], [`interleave`] every order of a few calls, and
//! [`races`], [`duels`], [`crowds`] and [`alarms`] let several handles at the same rows at once.

#![expect(missing_docs, reason = "the name of a case says what it expects")]

pub mod bad_input;
pub mod blocks;
pub mod branch_children;
mod branch_kit;
pub mod branch_polls;
pub mod branch_watches;
pub mod branches;
pub mod child_signals;
pub mod children;
pub mod claim;
pub mod commit;
pub mod control;
pub mod flow_control_races;
pub mod fork;
pub mod gate;
pub mod inspect;
pub mod interleave;
pub mod journal;
pub mod kit;
pub mod lease;
pub mod lost_children;
pub mod machine;
pub mod maintenance_races;
pub mod prune;
pub mod races;
pub mod random_sequences;
pub mod rate;
pub mod reap;
pub mod restate;
pub mod restore;
pub mod schedule;
pub mod serial;
pub mod signal;
pub mod state_table;
pub mod submit;
pub mod timers;
pub mod undecodable;
pub mod unique;
pub mod unreadable_signals;
pub mod unwind;
pub mod wait;
pub mod wake_races;

/// Makes a test of every case for one backend. `$open` names an async function without arguments that opens
/// a fresh, empty store and answers `(whatever must be kept meanwhile, Arc<dyn Store>)`.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance_cases! { $open;
            submit {
                a_new_job_is_ready_and_all_of_it_is_kept
                a_repeat_is_recognised_by_id_and_digest
                another_input_under_the_same_id_is_refused
                a_key_belongs_to_the_first_job_of_its_kind
                duplicates_within_one_call_are_answered_like_repeats
                keys_and_ids_stay_taken_after_the_end
                a_past_moment_is_now_and_a_future_one_waits
                a_delay_counts_from_the_submit
                a_century_of_delay_and_the_last_moment_are_kept
                a_born_job_is_claimed_by_its_submitter
                a_born_job_that_waits_is_not_claimed
                a_dead_lapsed_or_unknown_worker_bears_nothing
                a_repeated_born_submit_is_answered_as_the_first
                a_born_claim_can_be_repeated_settled_and_retired
                an_empty_submit_does_nothing
                a_thousand_jobs_go_in_at_once
            }
            claim {
                jobs_come_by_rank_across_kinds
                priority_goes_first_and_age_overtakes_it
                equal_ranks_come_in_the_order_of_ids
                only_the_kinds_versions_and_queue_asked_are_taken
                the_limit_holds_and_nothing_is_taken_twice
                a_claim_hands_over_all_that_a_worker_needs
                the_same_number_again_brings_the_same_jobs
                a_repeat_brings_only_what_is_still_claimed
                a_repeat_of_a_claim_that_took_nothing_may_take
                settled_claims_are_forgotten
                a_dead_or_unknown_worker_claims_nothing
                a_lapsed_lease_claims_nothing_until_renewed
                suspects_are_told_and_only_taken_alone
                alone_takes_one_suspect_by_rank
                a_retried_suspect_is_an_ordinary_job_again
            }
            commit {
                done_keeps_the_output
                failed_keeps_reason_and_error
                every_reason_is_kept
                cancelled_is_no_failure
                retry_waits_and_comes_back
                retry_without_delay_is_ready_at_once
                a_retry_beyond_time_is_kept
                an_undecodable_input_counts_no_attempt
                a_lost_answer_is_committed_and_writes_nothing
                a_lost_retry_answer_stays_committed_until_the_next_change
                a_released_claim_is_fenced
                a_reaped_claim_is_fenced
                an_expired_job_is_fenced
                a_retired_claim_is_fenced
                the_same_worker_with_an_older_epoch_is_fenced
                a_stale_rev_is_fenced
                an_unknown_job_is_fenced
                an_output_above_the_limit_is_refused_alone
                five_hundred_mixed_changes_in_one_batch
                the_deadline_is_gone_after_the_end
                a_lapsed_lease_is_no_fence
                histories_keep_every_failed_attempt
                errors_are_cleaned_before_they_are_kept
                an_empty_commit_does_nothing
                another_change_of_the_same_claim_is_no_repeat
            }
            lease {
                a_name_is_taken_once
                renewal_lengthens_the_lease
                others_whose_lease_ran_out_are_told
                a_dead_worker_never_revives
                release_hands_back_where_it_stood
                release_passes_over_outdated_claims
                a_released_suspect_stays_one
                retire_hands_back_everything_without_an_attempt
                retire_twice_or_unknown_hands_back_nothing
                renewal_settles_claims
                claims_nobody_heard_of_are_told_and_disowned
                renewal_ends_aloneness
            }
            restore {
                a_claim_that_the_store_has_lost_writes_nothing
                nothing_is_written_beside_a_change_of_a_lost_claim
                what_another_claim_wrote_is_no_repeat
                a_worker_that_claims_again_what_was_lost_is_told_apart
                a_job_of_a_lost_claim_is_returned_with_the_worker_that_has_it
                a_repeat_is_recognised_after_its_claim_was_settled
                a_lost_claim_hands_nothing_back
                a_lost_claim_moves_no_job_that_waits
                jobs_whose_outcome_was_lost_stay_in_their_claim
            }
            reap {
                a_worker_named_dead_loses_its_jobs
                a_lapsed_worker_is_reaped_only_when_asked
                committed_and_released_jobs_are_left_alone
                batches_are_bounded_and_there_is_more
                a_lost_attempt_is_in_the_history
                only_deaths_alone_count_and_the_cap_poisons
                a_cap_of_zero_poisons_at_the_first_death_alone
                poison_takes_the_deadline_with_it
                a_claim_after_death_is_refused
                a_settled_claim_is_not_walked
                reaping_nobody_does_nothing
                a_returned_job_keeps_its_place_in_line
            }
            timers {
                timers_fire_in_order_and_bounded
                next_at_tells_the_next_moment
                a_scheduled_ready_or_running_job_expires
                wake_and_deadline_in_the_same_batch
                a_suspect_expires_out_of_its_lane
                a_retried_job_wakes_once
                nothing_due_is_nothing_done
                an_expired_job_has_no_attempt_in_its_history
            }
            gate {
                a_gate_moves_exactly_when_its_queue_gains
                the_timers_gate_moves_when_a_timer_is_set
                every_way_back_moves_the_gate
                what_gains_nothing_moves_nothing
                gates_of_unknown_queues_stand_still
                handles_move_one_gate_together
            }
            inspect {
                children_are_listed_oldest_first
                what_workers_serve_is_shown
                queues_show_what_waits_longest
                every_filter_selects
                machines_are_found_by_stage_and_version
                pages_are_keyset_pages_newest_first
                the_census_adds_up_and_is_capped
                the_backlog_says_what_waits_and_since_when
                workers_are_shown
                the_end_is_told
                unknown_jobs_are_none
                a_running_job_shows_its_holder
                schema_clock_and_size_answer
            }
            schedule {
                a_tick_fires_once_and_the_next_is_told
                missed_ticks_are_caught_up_as_the_policy_says
                skip_leaves_out_ticks_while_the_last_job_lives
                queue_runs_them_one_after_the_other
                cancel_previous_ends_the_one_before
                a_paused_schedule_rests_and_catches_nothing_up
                a_trigger_fires_now_and_moves_nothing
                a_changed_schedule_keeps_its_pace_unless_the_calendar_changed
                bad_schedules_are_refused_with_a_reason
                eight_processes_fire_each_tick_once
            }
            machine {
                a_step_goes_on_under_the_same_claim
                whoever_claims_a_machine_goes_on_where_it_stands
                transitions_are_recorded_with_where_they_led
                paths_count_the_transitions_of_the_newest
                counters_start_anew_with_every_step
                a_retry_keeps_what_the_step_has_made_of_its_stage
                a_retry_without_an_error_leaves_no_history
                a_paused_machine_halts_after_its_step
                a_machine_that_was_told_to_end_halts_after_its_step
                a_resumed_machine_does_not_halt
                a_yield_lets_others_pass
                a_lost_answer_of_a_step_is_told_again
                large_data_is_kept_replaced_and_forgotten
                what_a_step_may_not_write_is_refused_alone
                a_suspect_that_has_got_further_is_an_ordinary_job
            }
            restate {
                a_ready_machine_waits_for_its_new_version
                other_handles_find_a_machine_in_its_new_version
                a_parked_machine_waits_on_in_its_new_version
                whatever_place_a_machine_is_in_it_keeps_it
                a_failed_machine_is_given_another_state_and_retried
                what_runs_is_done_or_has_moved_is_refused
                a_new_state_is_in_the_audit_log
                a_state_that_cannot_be_is_refused_before_anything_is_done
            }
            signal {
                a_late_signal_wakes_a_parked_job
                an_early_signal_is_there_when_a_job_waits
                a_signal_is_delivered_once
                a_signal_of_another_name_stays_for_later
                a_wait_for_any_is_over_with_the_first
                a_wait_for_all_is_over_with_the_last
                a_step_is_shown_every_signal_of_a_name_if_it_asks_for_them
                a_full_inbox_takes_no_more
                ended_and_unknown_jobs_take_none
                a_bad_signal_refuses_the_call
                a_signal_during_a_step_is_not_lost
                signals_are_consumed_by_progress_alone
                a_job_may_be_submitted_with_signals
                nothing_is_left_of_the_signals_of_a_pruned_job
            }
            unreadable_signals {
                a_wait_goes_on_as_if_the_signal_had_not_come
                the_next_of_its_name_ends_the_wait
                a_wait_for_several_needs_what_was_not_set_aside
                a_wait_ends_by_its_time_though_a_signal_was_set_aside
                only_a_change_that_is_written_sets_aside
                what_was_set_aside_leaves_room_in_the_inbox
                a_signal_is_dropped_by_hand
                a_signal_is_restored_by_hand
                signals_of_ended_jobs_are_restored_for_their_next_attempt
                the_number_of_a_signal_is_given_once
                a_signal_that_is_dropped_is_handed_to_nobody
            }
            wait {
                a_job_that_is_paused_while_it_waits_is_set_aside_when_it_wakes
                a_parked_job_may_be_cancelled_and_tried_again
                a_parked_job_expires
                a_parked_job_that_was_told_to_end_is_ended
                a_parked_job_gives_its_serial_key_to_others
                a_parked_job_that_holds_keeps_its_serial_key
                a_wait_that_is_over_at_once_keeps_the_serial_key
                a_parked_job_has_its_unique_name
                what_a_job_waits_for_is_shown
                priority_holds_for_a_parked_job_when_it_wakes
                a_sweep_finds_no_parked_job_to_wake
                a_timeout_wakes_like_a_signal
                a_signal_in_time_leaves_no_timer
            }
            children {
                a_job_goes_on_when_its_last_child_has_ended
                every_end_of_a_child_counts
                a_parent_may_end_in_the_batch_that_wakes_it
                a_job_with_no_child_goes_on_at_once
                children_that_are_not_put_in_do_not_count
                a_child_does_not_take_the_name_of_its_parent
                a_fenced_step_submits_nothing
                a_wait_is_for_the_children_of_its_own_step
                children_that_ended_before_the_wait_end_it_at_once
                a_wait_for_children_has_an_end_too
                a_child_that_is_tried_again_counts_again
                a_retried_child_is_not_an_ended_one
                grandchildren_wake_their_parents_one_after_the_other
                one_batch_may_end_all_children_and_their_children
                how_children_ended_is_told
                children_are_kept_while_their_parent_lives
                children_of_an_ended_parent_end_alone
                children_take_their_places_like_others
                a_step_may_end_a_wait_and_bear_the_next_children
                children_that_are_too_large_together_are_refused
            }
            journal {
                every_outcome_writes_its_entries
                a_step_without_a_stage_leaves_the_stage_as_it_is
                a_part_of_a_step_leaves_the_wait_and_the_budget_as_they_are
                entries_are_read_by_place_and_in_pages
                a_thousand_entries_go_in_and_come_out_at_once
                all_of_an_entry_is_kept
                entries_may_be_forgotten
                a_journal_may_start_anew
                a_fenced_change_adds_nothing
                a_repeated_change_adds_nothing_twice
                a_place_is_taken_once
                a_context_keeps_the_last_value_of_each_name
                what_a_journal_may_not_hold_is_refused_alone
                a_step_that_halts_writes_its_entries
                whoever_goes_on_finds_the_journal
                nothing_is_left_of_the_journal_of_a_pruned_job
            }
            child_signals {
                a_parked_parent_is_woken_by_the_end_of_a_child
                an_end_before_the_wait_is_not_lost
                a_batch_may_end_a_child_and_park_its_parent
                a_batch_may_end_a_child_and_then_its_parent
                every_end_of_a_child_is_told
                a_child_that_comes_back_has_not_ended
                a_child_that_is_tried_again_is_told_again
                an_ended_parent_is_told_nothing
                a_full_inbox_is_told_all_the_same
                nobody_else_tells_of_an_end
                told_children_do_not_count_for_a_wait
                a_parent_that_waits_for_more_sleeps_on
                a_paused_parent_stays_aside
                children_that_are_not_put_in_tell_nothing
            }
            branches {
                a_branch_is_opened_filled_and_sealed_in_one_change
                a_branch_is_filled_by_many_changes
                every_end_in_a_branch_is_counted
                a_batch_is_counted_per_branch
                a_child_that_goes_on_has_started_and_not_ended
                a_child_that_is_tried_again_counts_back
                a_lost_answer_counts_nothing_twice
                a_fenced_change_counts_nothing
                what_is_refused_in_a_batch_counts_nothing
                what_cannot_be_done_to_a_branch_is_refused_alone
                what_is_no_child_of_a_branch_is_refused
            }
            branch_children {
                branches_of_two_jobs_do_not_know_each_other
                other_children_stand_beside_those_of_a_branch
                branches_grow_from_branches
                children_of_a_branch_take_their_places_like_others
                a_child_says_where_it_stands
                children_are_listed_in_pages
                nothing_is_left_of_the_branches_of_a_pruned_job
                a_fork_has_no_branches
            }
            branch_watches {
                a_parked_parent_is_woken_when_its_watch_is_met
                what_was_met_before_the_watch_is_told_at_once
                what_is_met_before_the_park_ends_the_wait_at_once
                a_batch_may_meet_a_watch_and_park_its_parent
                a_branch_without_children_is_met_by_none
                the_newest_watch_is_the_only_one
                a_repeated_change_tells_nothing_twice
                a_child_that_comes_back_unmeets_nothing
                ends_from_outside_meet_a_watch
                two_branches_are_told_apart
                an_ended_parent_watches_nothing
                a_paused_parent_is_told_and_stays_aside
                a_full_inbox_is_told_of_a_branch_all_the_same
                nobody_else_tells_of_a_branch
                a_watch_moves_the_timers_gate
            }
            blocks {
                the_items_of_a_block_are_counted_in_parts
                whoever_goes_on_with_a_block_knows_what_is_left
                promoted_items_stay_in_the_branch
                items_are_promoted_into_a_sealed_branch
                a_block_that_ends_badly_counts_what_is_left
                a_block_that_is_ended_from_outside_counts_what_is_left
                a_block_that_never_ran_counts_whole
                items_meet_a_watch
                a_fenced_block_counts_nothing
                what_a_block_cannot_account_for_is_refused
                an_item_keeps_the_attempt_that_failed_in_its_block
                an_item_that_failed_in_its_block_meets_a_watch
                a_fenced_block_tries_nothing
                a_first_attempt_that_cannot_be_is_refused
            }
            branch_polls {
                a_branch_is_looked_at_at_its_pace
                a_look_takes_no_more_than_it_is_told_to
                healthy_children_are_left_alone
                a_branch_is_looked_at_until_its_watch_is_met
                a_merged_branch_is_not_looked_at
                a_parent_that_is_made_to_end_has_its_branches_cut
                an_expired_parent_has_its_branches_cut
                a_parent_that_ends_by_itself_leaves_its_branches
                a_step_may_cut_a_branch
                a_cut_branch_may_be_watched
                blocks_are_seen_by_their_items
                what_is_only_parked_is_looked_at_seldom
            }
            unwind {
                an_attempt_that_unwinds_is_not_ended_by_what_came_before
                a_job_that_waits_is_unwound_when_it_is_cancelled
                what_has_nothing_to_undo_ends_at_once
                whoever_cancels_twice_ends_it
                a_running_job_is_unwound_when_its_time_to_end_is_over
                a_job_that_is_unwound_and_told_again_is_ended
                a_job_that_halts_when_told_is_unwound_in_time
                a_deadline_unwinds_and_passes_once
                poison_is_unwound
                poison_while_it_is_unwound_ends_it
                a_job_whose_name_another_takes_is_unwound
                a_paused_job_is_unwound_and_its_pause_forgotten
                a_job_is_unwound_in_its_turn_of_a_serial_key
                a_running_job_of_a_serial_key_is_unwound_under_it
                a_retry_begins_anew_and_may_be_unwound_again
                an_attempt_may_have_itself_unwound
                every_outcome_may_say_that_there_is_something_to_undo
                a_parent_is_told_when_its_child_was_unwound
            }
            fork {
                a_fork_goes_on_from_an_entry_or_the_end
                a_job_without_a_journal_is_forked_from_its_beginning
                there_is_nothing_to_fork_where_no_entry_is
                a_repeated_fork_is_one
                a_key_that_is_taken_is_told
                a_fork_has_what_its_origin_has_but_for_what_is_its_own
                whatever_state_a_job_is_in_it_may_be_forked
                a_fork_of_a_keyed_job_waits_in_line
                a_fork_moves_the_gate_and_other_handles_find_it
            }
            interleave {
                every_order_of_signals_a_wait_and_its_timeout
                every_order_with_a_claim_in_between
                every_order_of_what_is_sent_twice
                every_order_with_the_death_of_the_worker
            }
            state_table { every_pair_of_state_and_event }
            bad_input {
                every_limit_is_an_error_that_says_so
                one_invalid_job_refuses_the_whole_call
                what_is_just_legal_is_taken
                odd_text_and_bytes_come_back_as_they_were
                a_claim_of_names_nobody_used_is_empty
            }
            serial {
                a_key_runs_one_at_a_time_first_come_first_served
                priority_never_reorders_a_line
                a_place_is_taken_when_a_job_is_due
                so_many_slots_run_at_once
                keys_do_not_hold_up_each_other_and_hold_across_queues
                a_slot_is_handed_over_in_the_commit_that_frees_it
                whatever_ends_or_parks_a_job_frees_its_slot
                a_retried_job_stands_where_it_stood
                a_retry_at_once_keeps_its_slot
                a_job_that_holds_keeps_its_slot_while_it_waits
                released_and_reaped_jobs_keep_their_slots
                slots_that_are_raised_let_more_in_and_lowered_ones_end_nothing
                the_newest_submit_says_the_slots_whatever_becomes_of_it
                a_job_in_line_is_ready_and_says_who_is_before_it
                jobs_leave_a_line_when_they_end
                a_keyed_job_is_never_born_claimed
                a_sweep_finds_nothing_to_do
            }
            unique {
                keep_answers_the_job_that_has_the_name
                reject_writes_nothing
                replace_cancels_what_waits_and_takes_its_place
                replace_does_not_touch_what_runs
                cancel_and_replace_tells_what_runs
                a_name_belongs_to_a_kind
                the_scope_says_in_which_states_a_job_has_its_name
                a_name_is_had_for_its_time_at_most
                ids_and_keys_go_before_names
                names_within_one_call_are_taken_in_order
                a_named_job_is_never_born_claimed
                a_failed_job_is_not_retried_while_another_has_its_name
                a_kept_job_frees_its_name_when_its_time_is_over_and_it_is_pruned
            }
            rate {
                never_more_than_the_bucket_pays_for
                jobs_go_by_rank_and_heavy_ones_are_not_overtaken
                a_long_pause_fills_the_bucket_no_further_than_the_burst
                refill_at_is_exact
                others_pass_by_a_dry_bucket_in_their_order
                a_bucket_is_shared_by_queues_and_kinds
                a_changed_limit_holds_at_once
                a_lifted_limit_lets_all_pass_until_it_is_made_anew
                an_unknown_limit_and_a_weight_above_the_burst_are_refused
                a_burst_below_the_weight_of_what_waits_lets_it_pass_when_full
                a_repeated_claim_is_charged_once_and_every_start_again
                suspects_are_charged_too
                handles_learn_of_each_others_limits
                a_throttled_job_says_what_it_waits_for
            }
            control {
                a_paused_job_is_not_claimed_until_it_is_resumed
                a_scheduled_job_is_set_aside_when_it_is_due
                a_running_job_runs_on_and_is_set_aside_when_it_comes_back
                a_paused_job_gives_up_its_place_in_line_and_takes_it_back
                what_is_paused_still_expires_and_is_cancelled
                nothing_is_claimed_from_a_paused_queue
                a_queue_may_be_paused_before_it_is_used
                what_waits_is_cancelled_at_once
                what_runs_is_told_and_may_finish_in_time
                what_was_told_and_does_not_end_is_ended
                what_was_told_is_not_claimed_again
                a_deadline_ends_what_was_told
                a_retry_begins_anew
                a_retried_job_goes_to_the_end_of_its_line
                what_is_done_or_live_is_not_retried
                priority_moves_a_ready_job_and_is_kept_of_others
                whatever_is_done_is_in_the_audit_log
                what_cannot_be_is_refused_before_anything_is_done
                nothing_is_born_claimed_in_a_paused_queue
            }
            prune {
                jobs_go_by_state_and_age
                calls_are_bounded_and_go_on_where_the_last_stopped
                only_the_kind_that_is_named_goes
                nothing_is_left_of_a_pruned_job
                a_child_of_a_live_parent_stays
                a_child_of_a_parent_that_may_be_retried_stays
                children_go_after_their_parent
            }
            maintenance_races {
                a_claim_against_its_reaper_leaves_nothing_stuck
                a_birth_against_its_reaper_leaves_nothing_stuck
                commit_against_reap_has_one_winner
                commit_against_release_has_one_winner
                commit_against_expiry_has_one_winner
                expiry_against_every_way_back_leaves_no_ghost
                wake_against_expiry_leaves_no_ghost
                retire_against_reap_returns_each_job_once
            }
            races {
                eight_claimers_take_each_job_once
                eight_submitters_make_one_job_per_key
                eight_submitters_of_the_same_ids_make_each_once
                two_reapers_return_each_job_once
                two_retirings_hand_back_each_job_once
                eight_timekeepers_fire_each_timer_once
                the_same_commit_twice_at_once_writes_once
                the_same_claim_twice_at_once_takes_once
                a_storm_of_everything_loses_nothing
            }
            wake_races {
                signals_against_a_park_wake_it
                a_wait_for_two_is_woken_by_the_last_of_two_senders
                a_signal_against_its_timeout_wakes_once
                ends_of_children_against_their_parents_park_wake_it
                a_child_that_is_cancelled_against_its_own_end_counts_once
                ends_in_a_branch_against_the_park_of_its_job_wake_it
                what_happens_to_a_child_at_once_is_counted_once
                branches_are_looked_at_by_one_of_many
            }
            flow_control_races {
                eight_submitters_of_one_serial_key_never_run_two_at_once
                eight_submitters_of_one_serial_key_are_served_by_place
                eight_users_of_a_key_with_three_slots_run_three_at_most
                eight_submitters_of_one_name_make_one_job
                eight_replacers_of_one_name_leave_one_job
                eight_claimers_share_one_bucket
                a_commit_against_a_cancel_has_one_winner
                a_pause_against_a_claim_leaves_the_job_in_one_place
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
                    $crate::conformance::$file::$case(store).await;
                }
            )*
        }
    )*};
}

#[cfg(test)]
mod tests {
    /// A case that nobody lists would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("mod.rs");
        let files = [
            include_str!("submit.rs"),
            include_str!("claim.rs"),
            include_str!("commit.rs"),
            include_str!("lease.rs"),
            include_str!("reap.rs"),
            include_str!("timers.rs"),
            include_str!("gate.rs"),
            include_str!("inspect.rs"),
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
            include_str!("restate.rs"),
            include_str!("signal.rs"),
            include_str!("wait.rs"),
            include_str!("children.rs"),
            include_str!("journal.rs"),
            include_str!("child_signals.rs"),
            include_str!("branches.rs"),
            include_str!("branch_children.rs"),
            include_str!("branch_watches.rs"),
            include_str!("blocks.rs"),
            include_str!("branch_polls.rs"),
            include_str!("unwind.rs"),
            include_str!("fork.rs"),
            include_str!("interleave.rs"),
            include_str!("restore.rs"),
        ];
        for line in files.iter().flat_map(|file| file.lines()) {
            let Some(rest) = line.strip_prefix("pub async fn ") else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            let listed = list.split_whitespace().any(|word| word == name);
            assert!(listed, "the case {name} is not in the list of conformance!");
        }
    }
}
