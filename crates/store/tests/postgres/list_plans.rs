//! The plans of lists and of what the doctor reads: each walks one index, and reads only as many rows as it returns.

use super::plans::{assert_reads_only_its_batch, hundred, statement};

/// 40,000 jobs with keys and tags in 2,500 periods: a quarter failed, a quarter are parked in a stage, a quarter ready, and the others
/// done. One job of another kind is older. Half of the failed ones are children of two branches.
const JOBS: &str = "
    delete from jobs; delete from lane_periods; delete from tags; delete from ready; delete from parked_jobs; delete from branches;
    insert into queues (name) values ('default') on conflict do nothing;
    insert into kinds (name) values ('mail'), ('rare') on conflict do nothing;
    insert into lanes (queue, kind, version) select 1, id, 1 from kinds on conflict do nothing;
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, key, tags, state, unsuccessful_state, stage,
                      error_class, unsuccessful_stage, parked, parent, branch)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0, n, case when n = 0 then 2 else 1 end,
           case when n = 0 then 2 else 1 end, 0, 0, '', '1', 'order-' || n, '[\"red\"]',
           case n % 4 when 1 then 2 when 3 then 1 else 0 end, case n % 4 when 1 then 2 end, 'Pay',
           case n % 4 when 1 then 'busy' end, case n % 4 when 1 then 'Pay' end, case n % 4 when 2 then 1 end,
           case when n % 8 = 1 then '00000000-0000-7000-8000-000000000000'::uuid end, case when n % 8 = 1 then n / 8 % 2 end
    from generate_series(0, 39999) n;
    insert into tags (tag, job) select 'red', id from jobs;
    insert into parked_jobs (stage, job) select stage, id from jobs where parked = 1;
    insert into ready (lane, rank, job) select lane, due_at, id from jobs where state = 0 and parked is null;
    insert into branches (job, number, name, opened_at, spawned, poll_at, watch)
    select '00000000-0000-7000-8000-000000000000', n, 'b', 0, 9, 9000 + n, '{}' from generate_series(0, 5000) n;
    insert into lane_periods (lane, period, writer) select 1, n, w from generate_series(0, 2499) n, generate_series(1, 3) w";

#[tokio::test]
async fn what_a_dashboard_reads_is_found_by_keys() {
    let (ids, first) = (hundred(500), "'{00000000-0000-7000-8000-000000000000}'");
    let calls = [
        (statement("pulse.pulse"), format!("null, {ids}, 1")),
        (statement("details.summaries"), format!("1, {ids}")),
        (statement("details.details"), format!("1, {ids}")),
        (statement("details.unsuccessful"), "null, null, 100, 2::int2".into()),
        (statement("details.unsuccessful_of_class"), "null, null, 100, 'busy'".into()),
        (statement("details.parked"), "100".into()),
        (statement("details.last_calls"), format!("{ids}, 8::int2, 1::int2")),
        (statement("children.open_branches"), "1, 100".into()),
    ];
    assert_reads_only_its_batch(&calls, JOBS).await;
    let pulse_of_none = [(statement("pulse.pulse"), "null, '{}', 1".to_owned())];
    assert_reads_only_its_batch(&pulse_of_none, JOBS).await;
    let last_call = [(statement("details.last_calls"), format!("{first}, 8::int2, 1::int2"))];
    assert_reads_only_its_batch(&last_call, JOURNAL).await;
}

/// A journal of 40,000 entries.
const JOURNAL: &str = "
    delete from journal;
    insert into journal (job, seq, call_kind, event, name, at, codec, payload)
    select '00000000-0000-7000-8000-000000000000', n, 1, 3, 'call', 0, 0, '1' from generate_series(1, 40000) n";

#[tokio::test]
async fn lists_read_only_their_page() {
    let most = |call: &str| format!("null, null, 100{call}");
    let ids = hundred(500);
    let filter = "null, null, null, '{1,2}', 'red', null, 'order', 'busy', 'Pay', true, null";
    let all = "'{ffffffff-ffff-ffff-ffff-ffffffffffff}', '{00000000-0000-0000-0000-000000000000}'";
    let calls = [
        (statement("lists.all"), most("")),
        (statement("lists.ranges"), format!("{all}, 100")),
        (statement("lists.periods"), "0, 9223372036854775807, 100, '{1,2}'".into()),
        (statement("lists.tag"), most(", 'red'")),
        (statement("lists.unsuccessful"), most(", 2::int2")),
        (statement("lists.error_class"), most(", 'busy'")),
        (statement("lists.unsuccessful_stage"), most(", 'Pay'")),
        (statement("lists.parked_stage"), most(", 'Pay'")),
        (statement("lists.key"), most(", 'order-7'")),
        (statement("lists.key_prefix"), most(", 'order-39', 'order-390'")),
        (statement("lists.size_of_tag"), "100, 'red'".into()),
        (statement("lists.size_of_error_class"), "100, 'busy'".into()),
        (statement("lists.size_of_unsuccessful_stage"), "100, 'Pay'".into()),
        (statement("lists.size_of_parked_stage"), "100, 'Pay'".into()),
        (statement("lists.size_of_key_prefix"), "100, 'order', 'ordes'".into()),
        (statement("lists.size_of_timers"), "100".into()),
        (statement("lists.matching"), format!("1, {ids}, {filter}")),
        (statement("lists.count_matching"), format!("1, {ids}, {filter}")),
        (statement("prune.periods"), format!("'{{1,2}}', '{{7}}', {all}")),
        (statement("diagnose.oldest_ready"), String::new()),
        (statement("diagnose.suspects"), "100".into()),
        (statement("diagnose.unhandled_failures"), "100".into()),
        (statement("diagnose.awaited_branches"), "100".into()),
        (statement("diagnose.orphaned_branches"), "100".into()),
        (statement("views.queues"), String::new()),
    ];
    assert_reads_only_its_batch(&calls, JOBS).await;
}
