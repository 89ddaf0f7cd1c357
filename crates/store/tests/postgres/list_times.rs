//! Times of lists in a store with two million jobs; see `print_list_times`.

use windlass_store::conformance::list_times::print_list_times;

/// `$1` jobs, two a millisecond: of them a tenth failed and some wait; the oldest tenth is of a kind of its own, and another kind has one job
/// in a hundred thousand.
const JOBS: &str = "
    insert into queues (name) values ('main'), ('bulk');
    insert into kinds (name) values ('mail'), ('sms'), ('old'), ('rare');
    insert into lanes (queue, kind, version) values (1, 1, 1), (2, 2, 1), (1, 3, 1), (1, 4, 1);
    create temp table seed as
    select n, (substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id,
           case when n % 100000 = 77 then 4 when n < JOBS / 10 then 3 when n % 3 = 0 then 2 else 1 end as lane,
           case when n > JOBS - 10000 then 0 when n % 10 = 1 then 2 when n % 50 = 2 then 3 when n % 20 = 3 then 4
                when n % 20 = 4 and n < JOBS / 2 then 5 else 1 end as place,
           case when n % 50000 = 3 or n % 50000 = 1 then 'Rare' when n % 20 in (1, 3) then 'Paying' end as stage
    from (select n, lpad(to_hex(1800000000000 + n / 2), 12, '0') as h from generate_series(1, JOBS) n) n;
    insert into jobs (id, submitted_at, due_at, lane, kind, priority, codec, digest, input, key, tags, state, unsuccessful_state, stage,
                      error_class, unsuccessful_stage, parked, finished_at, failure)
    select id, n, n, lane, lane, 0, 0, '\\x00112233445566778899aabbccddeeff', '{\"n\":1}', case when n % 2 = 0 then 'order-' || n end,
           case when n % 5 = 0 then '[\"red\"]' end, case when place in (1, 2, 3) then place else 0 end,
           case when place in (2, 3) then place end, stage,
           case when place = 2 then case when n % 100000 = 11 then 'rare' else 'busy' end end,
           case when place in (2, 3) then stage end, case when place = 4 then 1 end, n, null
    from seed order by n;
    insert into tags (tag, job) select 'red', id from seed where n % 5 = 0 union all select 'rare', id from seed where n % 100000 = 5;
    insert into parked_jobs (stage, job) select coalesce(stage, ''), id from seed where place = 4;
    insert into ready (lane, rank, job) select lane, n, id from seed where place = 0;
    insert into timers (due_at, job, purpose) select n, id, 0 from seed where place = 5;
    insert into lane_periods (lane, period, writer) select distinct lane, (1800000000000 + n / 2) / 16, 1 from seed;
    insert into job_counts (lane, writer, live, scheduled, waiting, done, failed, cancelled)
    select lane, 1, count(*) filter (where place in (0, 4, 5)), count(*) filter (where place = 5), count(*) filter (where place = 4),
           count(*) filter (where place = 1), count(*) filter (where place = 2), count(*) filter (where place = 3)
    from seed group by lane;
    drop table seed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, and prints times"]
async fn print_times_of_lists_of_two_million_jobs() {
    let options = super::fresh();
    let (store, client) = super::open_with_client(&options).await;
    let jobs = std::env::var("JOBS").unwrap_or_else(|_| "2000000".into());
    client.batch_execute(&JOBS.replace("JOBS", &jobs)).await.expect("filled");
    print_list_times(&store).await;
    let sql =
        "select string_agg(format('%I', tablename), ', ') from pg_tables where schemaname = current_schema()";
    let tables: String = client.query_one(sql, &[]).await.expect("read").get(0);
    client.batch_execute(&format!("vacuum analyze {tables}")).await.expect("vacuumed");
    println!("after vacuum");
    print_list_times(&store).await;
}
