//! Times of lists in a store with two million jobs; see `print_list_times`.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_store::{
    conformance::{kit::Handle, list_times::print_list_times},
    sqlite::{Options, Sqlite},
};

use super::path;

/// The same jobs as on PostgreSQL.
const FILL: &str = "
    insert into windlass_queues (name) values ('main'), ('bulk');
    insert into windlass_kinds (name) values ('mail'), ('sms'), ('old'), ('rare');
    insert into windlass_lanes (queue, kind, version) values (1, 1, 1), (2, 2, 1), (1, 3, 1), (1, 4, 1);
    create temp table seed as
    with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < JOBS)
    select n, unhex(printf('%012x70008000%012x', 1800000000000 + n / 2, n)) as id,
           case when n % 100000 = 77 then 4 when n < JOBS / 10 then 3 when n % 3 = 0 then 2 else 1 end as lane,
           case when n > JOBS - 10000 then 0 when n % 10 = 1 then 2 when n % 50 = 2 then 3 when n % 20 = 3 then 4
                when n % 20 = 4 and n < JOBS / 2 then 5 else 1 end as place,
           case when n % 50000 = 3 or n % 50000 = 1 then 'Rare' when n % 20 in (1, 3) then 'Paying' end as stage
    from numbers;
    insert into windlass_jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, key, tags, state, unsuccessful_state,
                               stage, error_class, parked, finished_at)
    select id, n, n, lane, lane, 0, 0, x'00112233445566778899aabbccddeeff', '{\"n\":1}', case when n % 2 = 0 then 'order-' || n end,
           case when n % 5 = 0 then '[\"red\"]' end, case when place in (1, 2, 3) then place else 0 end,
           case when place in (2, 3) then place end, stage,
           case when place = 2 then case when n % 100000 = 11 then 'rare' else 'busy' end end, case when place = 4 then 1 end, n
    from seed order by n;
    insert into windlass_tags (tag, job)
    select 'red', id from seed where n % 5 = 0 union all select 'rare', id from seed where n % 100000 = 5;
    insert into windlass_ready (lane, rank, job) select lane, n, id from seed where place = 0;
    insert into windlass_timers (due_at, job, purpose) select n, id, 0 from seed where place = 5;
    insert into windlass_lane_periods (lane, period) select distinct lane, (1800000000000 + n / 2) / 16 from seed;
    insert into windlass_job_counts (lane, live, scheduled, waiting, done, failed, cancelled)
    select lane, sum(place in (0, 4, 5)), sum(place = 5), sum(place = 4), sum(place = 1), sum(place = 2), sum(place = 3)
    from seed group by lane;
    drop table seed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and prints times"]
async fn print_times_of_lists_of_two_million_jobs() {
    let (_folder, path) = path();
    let store: Handle = Arc::new(Sqlite::open(Options::new(&path)).expect("open"));
    let jobs = std::env::var("JOBS").unwrap_or_else(|_| "2000000".into());
    Connection::open(&path).expect("open").execute_batch(&FILL.replace("JOBS", &jobs)).expect("filled");
    print_list_times(&store).await;
}
