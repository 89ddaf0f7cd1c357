//! What statements about branches cost a large store: each walks an index and touches what it is asked for.

use super::plans::{claims, cost_their_batch, hundred, sql, times};

/// 20,000 jobs: the first has a branch with all others in it, of which the second half is done, and 5,000 more branches with
/// nothing in them, which were looked at. Tallies of 64 lanes for each of the first hundred.
const BRANCHES: &str = "
    delete from jobs; delete from ready; delete from branches; delete from tallies; delete from claims;
    insert into queues (name) values ('default') on conflict do nothing;
    insert into kinds (name) values ('served') on conflict do nothing;
    insert into lanes (queue, kind, version) values (1, 1, 1) on conflict do nothing;
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, state, parent, branch, spawn,
                      branched)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0, n, 1, 1, 0, 0, '', '1',
           case when n > 10000 then 1 else 0 end,
           case when n > 0 then '00000000-0000-7000-8000-000000000000'::uuid end, case when n > 0 then 1 end,
           case when n > 0 then 0 end, case when n = 0 then true end
    from generate_series(0, 19999) n;
    insert into ready (lane, rank, job) select lane, due_at, id from jobs where state = 0 and parent is not null;
    insert into branches (job, number, name, opened_at, poll_at, watch)
    select '00000000-0000-7000-8000-000000000000', n, 'b', 0, 9000 + n, '{}' from generate_series(1, 5000) n;
    insert into tallies (job, branch, lane, started, done, failed, cancelled)
    select '00000000-0000-7000-8000-000000000000', n, lane, 1, 1, 0, 0
    from generate_series(1, 100) n, generate_series(0, 63) lane;
    insert into claims (worker, number, claimed_at, alone, jobs, epochs)
    select 7, 1, 0, false, array_agg(id), array_agg(0) from (select id from jobs where parent is not null limit 100) j";

#[tokio::test]
async fn branches_cost_their_batch() {
    let (zero, one, seven, null) = (times("0"), times("1"), times("7"), times("null"));
    let (first, firsts) =
        ("'00000000-0000-7000-8000-000000000000'", times("00000000-0000-7000-8000-000000000000"));
    let change = |n: u32| format!("null, {}, {zero}, {zero}, {seven}, {zero}", hundred(n));
    let (not, x) = (times("f"), times("x"));
    let numbers: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    let numbers = format!("'{{{}}}'", numbers.join(","));
    let none = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'";
    let calls = [
        (
            sql!("submit_twigs"),
            format!(
                "null, {}, {one}, {one}, {zero}, {null}, {zero}, {null}, {x}, {zero}, {x}, {null}, {null}, {null}, {null}, \
                 {firsts}, {one}, {zero}, {x}, {null}, true, '{{}}', '{{}}', 1, 1, 9000, true",
                hundred(30_000)
            ),
        ),
        (sql!("commit_done_tally"), format!("{}, {zero}, {x}, 1, {}", change(1_000), claims())),
        (
            sql!("commit_done_journal_tally"),
            format!("{}, {zero}, {x}, {none}, 1, {}", change(2_000), claims()),
        ),
        (sql!("commit_tally"), format!("{firsts}, {numbers}, {one}, {one}, {zero}, {zero}, 1")),
        (sql!("commit_branches"), format!("{firsts}, {numbers}")),
        (sql!("commit_open"), format!("null, array[{first}]::uuid[], '{{9000}}', '{{b}}'")),
        (
            sql!("commit_grow"),
            format!(
                "null, {firsts}, {numbers}, {null}, {null}, {null}, {not}, {null}, {zero}, {null}, {not}, {not}, {zero}, 1"
            ),
        ),
        (sql!("commit_items"), format!("{}, {zero}, {zero}", hundred(3_000))),
        (sql!("signal_watched"), format!("{firsts}, {numbers}")),
        (sql!("signal_branch"), format!("null, {firsts}, {numbers}")),
        (sql!("act_jobs"), hundred(4_000)),
        (sql!("due_jobs"), hundred(4_000)),
        (sql!("reap_job"), hundred(4_000)),
        (sql!("act_end"), format!("{}, {x}, 9000", hundred(4_000))),
        (sql!("poll_next"), "null".into()),
        (sql!("poll_take"), "9100, 100, 99999".into()),
        (sql!("poll_count"), format!("{first}, 1, {first}, 100")),
        (sql!("poll_lost"), format!("{first}, 1, {first}, 100, 1")),
        (sql!("poll_return"), format!("{}, 1", hundred(5_000))),
        (sql!("poll_hold"), format!("{first}, 300, 9300, 9301")),
        (sql!("poll_write"), format!("{first}, 200, 9200, '{{}}', true, 1, 1")),
        (sql!("inspect_children"), format!("1, {first}, null, 100")),
        (sql!("inspect_leaves"), format!("1, {first}, 1, null, null, 100, 100")),
        (sql!("inspect_bad"), format!("1, {first}, 1, null, 100")),
        (sql!("inspect_joined"), format!("{first}, 1, null, 100")),
        (sql!("prune"), format!("{}, 1, '{{}}', '{{}}', '{{}}', 9000", hundred(15_000))),
    ];
    cost_their_batch(&calls, BRANCHES).await;
}

/// Those that read all tallies of the branches they are asked for, and all branches of a job.
#[tokio::test]
async fn what_is_seen_of_branches_costs_their_lanes() {
    let first = "'00000000-0000-7000-8000-000000000000'";
    let three = format!("array[{first}, {first}, {first}]::uuid[], '{{1, 2, 3}}'");
    let calls = [
        (sql!("commit_look"), three.clone()),
        (sql!("poll_seen"), three),
        (sql!("poll_sum"), format!("{first}, 1")),
        (sql!("act_orphan"), "'{00000000-0000-7000-8000-000000000077}', 1, null, 1".into()),
        (sql!("inspect_branches"), "'00000000-0000-7000-8000-000000000077'".into()),
        (sql!("inspect_job"), "'00000000-0000-7000-8000-000000000077', 1".into()),
        (sql!("sweep_waits"), String::new()),
    ];
    cost_their_batch(&calls, BRANCHES).await;
}
