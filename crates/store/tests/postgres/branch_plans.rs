//! The plans of statements about branches in a large store: each walks an index, and reads only the rows of its batch.

use super::plans::{assert_reads_only_its_batch, claims, hundred, statement, times};

/// 20,000 jobs: the first has a branch with all others in it, of which the second half is done, and 5,000 empty branches, which
/// were polled. The first hundred branches have counts of 64 connections each.
const BRANCHES: &str = "
    delete from jobs; delete from ready; delete from branches; delete from branch_counts; delete from claims;
    insert into queues (name) values ('default') on conflict do nothing;
    insert into kinds (name) values ('served') on conflict do nothing;
    insert into lanes (queue, kind, version) values (1, 1, 1) on conflict do nothing;
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, parent, branch, spawn,
                      has_branches)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0, n, 1, 1, 0, 0, '', '1',
           case when n > 10000 then 1 else 0 end,
           case when n > 0 then '00000000-0000-7000-8000-000000000000'::uuid end, case when n > 0 then 1 end,
           case when n > 0 then 0 end, case when n = 0 then true end
    from generate_series(0, 19999) n;
    insert into ready (lane, rank, job) select lane, due_at, id from jobs where state = 0 and parent is not null;
    insert into branches (job, number, name, opened_at, poll_at, watch)
    select '00000000-0000-7000-8000-000000000000', n, 'b', 0, 9000 + n, '{}' from generate_series(1, 5000) n;
    insert into branch_counts (job, branch, writer, started, done, failed, cancelled)
    select '00000000-0000-7000-8000-000000000000', n, writer, 1, 1, 0, 0
    from generate_series(1, 100) n, generate_series(0, 63) writer;
    insert into job_counts (lane, writer, live, scheduled, waiting, done, failed, cancelled)
    select lane, writer, 1, 0, 0, 0, 0, 0 from generate_series(1, 100) lane, generate_series(0, 63) writer
    on conflict do nothing;
    insert into claims (worker, number, claimed_at, solo, jobs, epochs)
    select 7, 1, 0, false, array_agg(id), array_agg(0) from (select id from jobs where parent is not null limit 100) j";

#[tokio::test]
async fn statements_about_branches_read_only_their_batch() {
    let (zero, one, seven, null) = (times("0"), times("1"), times("7"), times("null"));
    let (first, firsts) =
        ("'00000000-0000-7000-8000-000000000000'", times("00000000-0000-7000-8000-000000000000"));
    let change = |n: u32| format!("null, {}, {zero}, {zero}, {seven}, {zero}, {}", hundred(n), claims());
    let (not, x) = (times("f"), times("x"));
    let numbers: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    let numbers = format!("'{{{}}}'", numbers.join(","));
    let none = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'";
    let calls = [
        (
            statement("submit.insert_branch_children"),
            format!(
                "null, 9000, {}, {one}, {one}, {zero}, {null}, {zero}, {null}, {x}, {zero}, {x}, {null}, {null}, {null}, \
                 {null}, '{{}}', '{{}}', {firsts}, {one}, {zero}, {x}, {null}, true, 1, 1, true, 1, '{{1}}', '{{1}}'",
                hundred(30_000)
            ),
        ),
        (statement("commit.done_counted"), format!("{}, {zero}, {x}, 1", change(1_000))),
        (statement("commit.done_journal_counted"), format!("{}, {none}, {zero}, {x}, 1", change(2_000))),
        (statement("branches.add_counts"), format!("{firsts}, {numbers}, {one}, {one}, {zero}, {zero}, 1")),
        (statement("branches.read_sealed"), format!("{firsts}, {numbers}")),
        (statement("branches.open"), format!("null, array[{first}]::uuid[], '{{9000}}', '{{b}}'")),
        (
            statement("branches.update"),
            format!(
                "null, {firsts}, {numbers}, {null}, {null}, {null}, {not}, {null}, {zero}, {null}, {not}, {not}, {zero}, 1"
            ),
        ),
        (statement("branches.count_items"), format!("{}, {zero}, {zero}", hundred(3_000))),
        (statement("branches.lock"), format!("{firsts}, {numbers}")),
        (statement("signals.notify_parents"), format!("null, {firsts}, {numbers}")),
        (statement("control.lock_jobs"), hundred(4_000)),
        (statement("timers.lock_jobs"), hundred(4_000)),
        (statement("reap.lock_jobs"), hundred(4_000)),
        (statement("control.cancel"), format!("{}, {x}, 9000, 1", hundred(4_000))),
        (statement("timers.expire"), format!("{}, {x}, 1::int2, 9000, 1", hundred(6_000))),
        (
            statement("counts.add_differences"),
            format!("1, {numbers}, {one}, {one}, {one}, {one}, {one}, {one}"),
        ),
        (statement("poll.next"), "null".into()),
        (statement("poll.take_due"), "9100, 100, 99999".into()),
        (statement("poll.count_children"), format!("{first}, 1, {first}, 100")),
        (statement("poll.find_lost"), format!("{first}, 1, {first}, 100, 1")),
        (statement("poll.redeliver"), format!("{}, 1", hundred(5_000))),
        (statement("poll.extend"), format!("{first}, 300, 9300, 9301")),
        (statement("poll.write"), format!("{first}, 200, 9200, '{{}}', true, 1, 1")),
        (statement("children.children"), format!("1, {first}, null, 100")),
        (statement("children.live_branch_children"), format!("1, {first}, 1, 100")),
        (statement("children.branch_ends"), format!("{first}, 1")),
        (
            statement("children.branch_ranges"),
            format!("1, {first}, 1, {}, {}, 1", hundred(7_000), hundred(7_001)),
        ),
        (statement("children.branch_children"), format!("1, {first}, 1, null, null, 100, 100")),
        (statement("children.unsuccessful_children"), format!("1, {first}, 1, null, 100")),
        (
            statement("children.branch_children_page"),
            format!("1, {first}, 1, null, '{{1}}', 100, 100, 1000000"),
        ),
        (statement("children.unsuccessful_children_page"), format!("1, {first}, 1, null, 100, 1000000, 100")),
        (statement("children.branch_items"), format!("{first}, 1, 0::int2, {numbers}")),
        (statement("children.child_output_sizes"), format!("{first}, 1, null, 100")),
        (statement("children.child_ends"), format!("{first}, 1, null, 100")),
        (
            statement("prune.jobs"),
            format!(
                "{0}, 1, '{{}}', '{{}}', '{{}}', 9000, {0}, array_fill('red'::text, array[100]), 1",
                hundred(15_000)
            ),
        ),
    ];
    assert_reads_only_its_batch(&calls, BRANCHES).await;
}

/// Statements that read all counts of some branches, or all branches of a job.
#[tokio::test]
async fn reads_of_branches_cost_their_counts() {
    let first = "'00000000-0000-7000-8000-000000000000'";
    let three = format!("array[{first}, {first}, {first}]::uuid[], '{{1, 2, 3}}'");
    let calls = [
        (statement("branches.read_counts"), three.clone()),
        (statement("poll.sample"), three),
        (statement("poll.read_sum"), format!("{first}, 1")),
        (statement("branches.end_watches"), "null, 1, '{00000000-0000-7000-8000-000000000077}', 1".into()),
        (statement("children.branches"), "'00000000-0000-7000-8000-000000000077'".into()),
        (statement("inspect.job"), "'00000000-0000-7000-8000-000000000077', 1".into()),
        (statement("repair.met_waits"), String::new()),
    ];
    assert_reads_only_its_batch(&calls, BRANCHES).await;
}
