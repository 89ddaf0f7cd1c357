//! The page `/components`: each part once, for those who work on the dashboard. It shows no data of a store.

use std::time::Duration;

use askama::Template;
use serde_json::json;
use windlass::{State, Time};

use crate::error::{Error, ErrorKind, PATH};

use super::{
    bars::{Band, CellState, ItemCell, ItemMap, Meter, Percentiles, Rail, Rails, Slice},
    calendar::{self, Calendar, CalendarRow, TickState},
    charts::{Chart, Series, Shape, Spark, Unit},
    diagram::{self, Diagram, Edge, Node},
    format::{Clock, bytes, counted, jobs, percent, rate, span, thousands},
    frame::Frame,
    html::{Html, Text},
    icon::Icon,
    page::{PageCall, html},
    parts::{
        Action, Attention, Blank, Chip, Counter, Counters, FilterField, Filters, Fold, Message, Newer, Note,
        Operation, Pages, Pill, Tab, Tabs, Tally, Tone, Why,
    },
    payload::Payload,
    timeline::{self, Segment, Timeline},
};

/// The page.
#[derive(Debug, Template)]
#[template(path = "components.html")]
pub(crate) struct Components {
    frame: Frame,
    /// Whether the drawer is open.
    is_previewed: bool,
}

/// Renders the page. Drawings and numbers in it are made up, so that it is there in debug builds alone.
pub(super) async fn show(call: PageCall) -> Result<String, Error> {
    if !cfg!(debug_assertions) {
        return Err(Error::new(ErrorKind::NotFound, "there is no such page", "it is in debug builds alone")
            .about(PATH));
    }
    let is_previewed = call.query.has("preview");
    html(&Components::new(call.frame("Components", "").await?, is_previewed))
}

impl Components {
    /// The page in this frame. `is_previewed` opens the drawer, as `?preview=retry` does.
    pub(crate) fn new(frame: Frame, is_previewed: bool) -> Components {
        Components { frame, is_previewed }
    }

    fn clock(&self) -> Clock {
        self.frame.clock()
    }

    fn ago(&self, seconds: u64) -> Time {
        self.frame.now - Duration::from_secs(seconds)
    }

    /// Pills with what they mean.
    fn pills(&self) -> Vec<(Pill, &'static str)> {
        let about = |state| match state {
            State::Scheduled => "A clock: it becomes ready later.",
            State::Ready => "A ring, and grey: a long queue is not an error.",
            State::Running => "A ring with a dot, in the accent.",
            State::Waiting => "An hourglass: parked, without a slot.",
            State::Done => "A disc with a tick.",
            State::Failed => "An octagon with a cross.",
            State::Cancelled => "A ring with a slash.",
        };
        let mut pills: Vec<_> =
            State::ALL.into_iter().map(|state| (Pill::state(state), about(state))).collect();
        pills.extend([
            (Pill::backing_off(), "A clock: the next attempt is later."),
            (Pill::paused(), "A square with two bars: someone did that."),
            (Pill::held(), "A diamond: a limit, a serial key or a cancel request."),
            (Pill::blocked(), "A padlock: nothing happens until someone acts."),
            (Pill::draining(), "An arrow to a line: it ends its jobs and claims no more."),
            (Pill::lost(), "A broken line: its lease is over."),
        ]);
        pills
    }

    /// The colours, by group.
    fn swatches(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("t-run fill", "run fill"),
            ("t-ok fill", "ok fill"),
            ("t-bad fill", "bad fill"),
            ("t-warn fill", "warn fill"),
            ("t-wait fill", "wait fill"),
            ("t-idle fill", "idle fill"),
            ("t-run soft", "run soft"),
            ("t-ok soft", "ok soft"),
            ("t-bad soft", "bad soft"),
            ("t-warn soft", "warn soft"),
            ("t-wait soft", "wait soft"),
            ("t-idle soft", "idle soft"),
        ]
    }

    fn why(&self) -> Why {
        Why {
            tone: Tone::Wait,
            icon: Icon::Waiting,
            question: "Why is it not running?",
            sentence: Html::words("It waits for the signal ")
                .bold("picked")
                .text(", ")
                .add(self.clock().lasts(self.ago(3_700)))
                .text(" now. If none comes by ")
                .add(self.clock().day(self.frame.now + Duration::from_secs(3 * 86_400)))
                .text(", it fails, and ")
                .bold("pay")
                .text(" and ")
                .bold("reserve")
                .text(" are undone."),
            more: Html::words("Of 9,214 waits for it, half took 48 min and 95 % took at most 2 h 10 min. ")
                .link("/waiting?signal=picked", "See all jobs that wait for it"),
            actions: vec![
                Action::link("Send “picked”…", "/components?preview=signal").primary().icon(Icon::Send),
            ],
        }
    }

    fn attention(&self) -> Vec<Attention> {
        let since =
            |seconds| Some((self.clock().ago(self.ago(seconds)), self.clock().minute(self.ago(seconds))));
        vec![
            Attention {
                id: "attention-1".into(),
                tone: Tone::Bad,
                icon: Icon::Failed,
                title: Html::words("61 jobs of ")
                    .user("charge")
                    .text(" failed with ")
                    .user("psp_unavailable"),
                href: "/failures?class=psp_unavailable".into(),
                detail: Html::words("0 of the last 71 attempts succeeded. 1,031 more wait in ")
                    .link("/queues/payments", "payments")
                    .text("."),
                since: since(34 * 60),
                actions: vec![
                    Action::link("Pause the queue…", "/components?preview=pause").small(),
                    Action::link("See failures", "/failures").small().primary(),
                ],
            },
            Attention {
                id: "attention-2".into(),
                tone: Tone::Warn,
                icon: Icon::Paused,
                title: Html::words("The queue ").user("mail").text(" is paused by ").user("mira"),
                href: "/queues/mail".into(),
                detail: Html::words("“")
                    .user("the template shows the wrong VAT")
                    .text("” ")
                    .link("/jobs?queue=mail", "780 jobs")
                    .text(" wait."),
                since: since(41 * 60),
                actions: vec![Action::link("Resume…", "/components?preview=resume").small()],
            },
            Attention {
                id: "attention-3".into(),
                tone: Tone::Idle,
                icon: Icon::Schedules,
                title: Html::words("The schedule ").user("customs-sync").text(" missed 3 ticks"),
                href: "/schedules/customs-sync".into(),
                detail: Html::words("Its last job still runs, and its overlap rule is to skip."),
                since: since(3_720),
                actions: vec![],
            },
        ]
    }

    fn counters(&self) -> Counters {
        let counter = |id, name, value: u64, icon: (Tone, Icon), below: &str| {
            Counter::new(id, name, &thousands(value))
                .icon(icon.0, icon.1)
                .href("/jobs")
                .below(Html::words(below))
        };
        Counters::new(
            "Jobs by state",
            vec![
                counter("n-running", "Running", 370, (Tone::Run, Icon::Running), "162 slots free")
                    .suffix("of 532"),
                counter("n-ready", "Ready", 389_210, (Tone::Idle, Icon::Ready), "oldest 41 min, in mail"),
                counter("n-scheduled", "Scheduled", 2_318, (Tone::Idle, Icon::Scheduled), "148 back off"),
                counter("n-waiting", "Waiting", 18_446, (Tone::Wait, Icon::Waiting), "17,902 for a signal"),
                counter("n-failed", "Failed", 300, (Tone::Bad, Icon::Failed), "118 in the last hour")
                    .tone(Tone::Bad),
                counter(
                    "n-done",
                    "Done in 24 h",
                    2_914_880,
                    (Tone::Ok, Icon::Done),
                    &format!("{} of what ended", percent(2_914_880, 2_916_455)),
                ),
            ],
        )
    }

    fn tabs(&self) -> Tabs {
        let tab = |name: &str, icon, count: &str, is_current| Tab {
            name: name.into(),
            href: format!("/jobs?state={}", name.to_lowercase()),
            icon,
            count: count.into(),
            id: format!("tab-{}", name.to_lowercase()),
            is_current,
        };
        Tabs {
            label: "State",
            tabs: vec![
                tab("All", None, "25,514", true),
                tab("Running", Some(Icon::Running), "12", false),
                tab("Ready", Some(Icon::Ready), "1,031", false),
                tab("Scheduled", Some(Icon::Scheduled), "88", false),
                tab("Waiting", Some(Icon::Waiting), "0", false),
                tab("Failed", Some(Icon::Failed), "61", false),
                tab("Done", Some(Icon::Done), "24,310", false),
            ],
        }
    }

    fn filters(&self) -> Filters {
        let chip = |name: &str, value: &str| Chip {
            name: name.into(),
            value: value.into(),
            without: "/components".into(),
        };
        let field = |name, label, hint, values: &[&str]| FilterField {
            name,
            label,
            hint,
            values: values.iter().map(|value| value.to_string()).collect(),
        };
        Filters {
            action: "/components".into(),
            chips: vec![chip("queue", "payments"), chip("kind", "charge"), chip("submitted", "last 24 h")],
            hidden: vec![("queue".into(), "payments".into())],
            fields: vec![
                field("kind", "Kind", "", &["charge", "order", "label"]),
                field("tag", "Tag", "customer-2217", &[]),
                field("key", "Key begins with", "order-48", &[]),
            ],
        }
    }

    fn newer(&self) -> Newer {
        Newer { count: 14, noun: ("job", "jobs"), href: "/components".into() }
    }

    /// Rows of a list: id, pill, key, why, attempt, serial key, when submitted.
    fn rows(&self) -> Vec<(u32, Pill, String, Html, &'static str, &'static str, u64)> {
        let row = |number: u32, pill: Pill, why: Html, tries, seconds| {
            (number, pill, format!("charge-{number}"), why, tries, "account-7074", seconds)
        };
        let exhausted = || {
            Html::words("exhausted: ").bold("psp_unavailable").text(": ").user("503 upstream connect error")
        };
        let mut rows = vec![
            row(
                48285,
                Pill::state(State::Running),
                Html::words("on ").bold("wk-pay-1").text(" for 1.2 s"),
                "1 of 6",
                38,
            ),
            row(
                48277,
                Pill::held(),
                Html::words("the limit ").bold("psp").text(" has no tokens before 14:32:11"),
                "1 of 6",
                64,
            ),
            row(48273, Pill::state(State::Failed), exhausted(), "6 of 6", 100),
            row(
                48266,
                Pill::backing_off(),
                Html::words("next attempt in 24 s, after ").bold("psp_unavailable"),
                "5 of 6",
                111,
            ),
            row(48264, Pill::state(State::Failed), exhausted(), "6 of 6", 140),
            row(48237, Pill::state(State::Done), Html::words("in 384 ms"), "1 of 6", 190),
            row(
                48210,
                Pill::paused(),
                Html::words("paused by ").bold("jonas").text(": “").user("double booking, OPS-812").text("”"),
                "1 of 6",
                460,
            ),
            row(48190, Pill::state(State::Scheduled), Html::words("due in 5 min"), "–", 3_700),
        ];
        rows.push((
            48_100,
            Pill::state(State::Waiting),
            format!("<script>\u{202e}{}", "k".repeat(10_000)),
            Html::new().user("a key of 10,000 characters, markup and a change of direction do no harm"),
            "1 of 6",
            "account-1",
            90_000,
        ));
        rows
    }

    fn pages(&self) -> Pages {
        Pages { text: "9 of 25,514 jobs".into(), first: None, next: Some("/components?after=48100".into()) }
    }

    fn fold(&self) -> Fold {
        Fold::more(1_204, "entries", "/components")
    }

    fn tally(&self) -> Tally {
        Tally::new(&[
            ("61", "match"),
            ("1", "is refused: its name is taken"),
            (&span(Duration::from_secs(31)), "at 2 a second"),
        ])
    }

    fn operation(&self) -> Operation {
        Operation {
            pill: Pill::state(State::Running),
            title: format!("Retry {} of charge", jobs(1_204)),
            done: 700,
            already: 12,
            refused: 3,
            left: 489,
            pace: Html::words(&format!("{}, about 4 min left", rate(2.0))),
            stop: Some(Action::post("Stop", "/operations/1/stop", &self.frame.csrf).small()),
        }
    }

    fn timeline(&self, folds: bool) -> Timeline {
        let from = self.ago(4_029);
        let at = |tenths: u64| from + Duration::from_millis(tenths * 100);
        let segment = |begin: u64, end: Option<u64>, appearance, label: &str, title: &str| Segment {
            from: at(begin),
            to: end.map(at),
            appearance,
            label: label.into(),
            title: title.into(),
        };
        let row = |name: &str, marks: Vec<Icon>, segments: Vec<Segment>, end: &str| timeline::Row {
            name: name.into(),
            href: "/components".into(),
            state: (Tone::Ok, Icon::Done),
            state_word: "done".into(),
            marks,
            segments,
            end: end.into(),
        };
        use timeline::Appearance;
        let mut rows = vec![
            row("find_stock", vec![], vec![segment(0, Some(3), Appearance::Ran, "", "41 ms")], "41 ms"),
            row(
                "reserve",
                vec![Icon::Undo],
                vec![segment(3, Some(9), Appearance::Ran, "", "220 ms")],
                "220 ms",
            ),
            row(
                "pay",
                vec![Icon::Undo],
                vec![
                    segment(9, Some(17), Appearance::Failed, "", "attempt 1: timeout"),
                    segment(17, Some(23), Appearance::BackOff, "", ""),
                    segment(23, Some(30), Appearance::Failed, "", "attempt 2: psp_unavailable"),
                    segment(30, Some(42), Appearance::BackOff, "", ""),
                    segment(42, Some(47), Appearance::Ran, "", "attempt 3: 412 ms"),
                ],
                "3 attempts",
            ),
            row(
                "hold",
                vec![Icon::Asleep],
                vec![segment(50, Some(3_050), Appearance::Asleep, "5 min", "")],
                "slept 5 min",
            ),
            row(
                "label",
                vec![Icon::Branches],
                vec![segment(3_050, Some(3_070), Appearance::Ran, "child", "label-48213, 1.9 s")],
                "1.9 s",
            ),
        ];
        let mut waits = row(
            "picked",
            vec![Icon::Signal],
            vec![segment(3_070, None, Appearance::Waited, "waits for the signal picked", "")],
            "until Sun 22 Nov",
        );
        (waits.state, waits.state_word) = ((Tone::Wait, Icon::Waiting), "waiting".into());
        rows.push(waits);
        Timeline::new(rows, self.clock(), None, folds)
    }

    fn payload(&self) -> Payload {
        let value = json!({
            "number": 48_213, "customer": "cus_2217", "express": false, "note": null, "cents": 12_900,
            "goods": [{ "sku": "LAMP-7", "n": 1 }, { "sku": "BULB-E27", "n": 4 }],
            "ship_to": { "street": "Storgatan 14", "city": "Malmö", "country": "SE" },
        });
        Payload::tree("input", "Input", 412, &value, "/jobs/1/input")
    }

    fn large_payload(&self) -> Payload {
        let value = json!(vec![json!({ "id": "x".repeat(2_000), "deep": [[[[[["end"]]]]]] }); 500]);
        Payload::tree("output", "Output", 1 << 20, &value, "/jobs/1/output")
    }

    fn no_payload(&self) -> Payload {
        Payload::absent("Output", Html::words("There is none yet: the job has not ended."))
    }

    fn machine(&self) -> Diagram {
        use diagram::Appearance;
        let node = |name: &str, appearance| Node {
            name: name.into(),
            under: String::new(),
            appearance,
            icon: None,
            href: None,
        };
        let mut here = node("AwaitDecision", Appearance::Here(Tone::Wait));
        here.under = "here for 2 d 4 h".into();
        let nodes = vec![
            node("", Appearance::Start),
            node("Filed", Appearance::Passed),
            node("AwaitParcel", Appearance::Passed),
            node("Inspect", Appearance::Passed),
            here,
            node("Refund", Appearance::Apart),
            node("Remind", Appearance::Apart),
            node("Explain", Appearance::Apart),
            node("", Appearance::End),
        ];
        let edge = |from, to, label: &str, is_taken| Edge { from, to, label: label.into(), is_taken };
        let edges = vec![
            edge(0, 1, "", true),
            edge(1, 2, "wait", true),
            edge(2, 3, "next", true),
            edge(3, 4, "wait", true),
            edge(4, 3, "look_again ×2", true),
            edge(4, 5, "×842", false),
            edge(4, 7, "×122", false),
            edge(2, 6, "×31", false),
            edge(6, 2, "", false),
            edge(5, 8, "", false),
            edge(7, 8, "", false),
        ];
        Diagram::new(
            "Stages of return_claim: it went from Filed to AwaitDecision, twice by way of Inspect.",
            nodes,
            edges,
        )
    }

    fn workflow(&self) -> Diagram {
        use diagram::Appearance;
        let node = |name: &str, under: &str, appearance, icon| Node {
            name: name.into(),
            under: under.into(),
            appearance,
            icon: Some(icon),
            href: Some("/components".into()),
        };
        let nodes = vec![
            node("reserve", "220 ms", Appearance::Passed, Icon::Done),
            node("pay", "3 attempts", Appearance::Passed, Icon::Done),
            node("label", "child, 1.9 s", Appearance::Passed, Icon::Branches),
            node("invoice", "child, failed", Appearance::Failed, Icon::Failed),
            node("hold", "slept 5 min", Appearance::Passed, Icon::Asleep),
            node("addresses", "12,000 children", Appearance::Passed, Icon::Branches),
            node("picked", "waits for 1 h 1 min", Appearance::Here(Tone::Wait), Icon::Waiting),
            node("ship", "", Appearance::Apart, Icon::Ready),
        ];
        let edge = |from, to, is_taken| Edge { from, to, label: String::new(), is_taken };
        let edges = vec![
            edge(0, 1, true),
            edge(1, 2, true),
            edge(1, 3, true),
            edge(2, 4, true),
            edge(3, 4, true),
            edge(4, 5, true),
            edge(5, 6, true),
            edge(1, 6, false),
            edge(6, 7, false),
        ];
        Diagram::new(
            "Calls of order: reserve, pay, two children, a sleep; it waits for picked.",
            nodes,
            edges,
        )
    }

    fn band(&self) -> Band {
        Band::new(
            "61.3 % of 1,000,000 children ended, 217 of them without success",
            vec![
                Slice::new(Tone::Ok, 612_480, "done").href("/jobs?state=done"),
                Slice::new(Tone::Bad, 214, "failed").hatched().href("/jobs?state=failed"),
                Slice::new(Tone::Idle, 3, "cancelled").hatched().href("/jobs?state=cancelled"),
                Slice::new(Tone::Run, 240, "running").href("/jobs?state=running"),
                Slice::new(Tone::Warn, 87, "back off").href("/jobs?state=scheduled"),
                Slice::rest(386_976, "not started").href("/jobs?state=ready"),
            ],
        )
    }

    fn small_band(&self) -> Band {
        Band::new(
            "61 % ended",
            vec![
                Slice::new(Tone::Ok, 61, "done"),
                Slice::new(Tone::Bad, 1, "failed").hatched(),
                Slice::rest(38, "left"),
            ],
        )
        .small()
    }

    fn meters(&self) -> Vec<Meter> {
        vec![
            Meter::new(Tone::Run, 4.0, 10.0),
            Meter::new(Tone::Warn, 92.0, 100.0).mark(0.62),
            Meter::new(Tone::Bad, 1.0, 1_000.0),
        ]
    }

    fn item_map(&self) -> ItemMap {
        let size = ItemMap::items_per_cell(1_000_000);
        let state = |cell| match cell {
            17 | 18 | 41 | 77 | 95 => CellState::Failed,
            123..=125 => CellState::Running,
            126 => CellState::Begun,
            0..123 => CellState::Done,
            _ => CellState::Untouched,
        };
        let cell = |number: u64| ItemCell {
            href: format!("/components?items={}", number * size),
            title: format!("{}–{}", thousands(number * size + 1), thousands((number + 1) * size)),
            state: state(number),
        };
        ItemMap {
            sentence: "Items in order, 5,000 to a cell: the first 123 cells are done but for 5 with failures"
                .into(),
            cells: (0..ItemMap::CELLS).map(cell).collect(),
        }
    }

    fn percentiles(&self) -> Vec<(&'static str, Percentiles)> {
        let ms = Duration::from_millis;
        let scale = (ms(100), ms(2_000_000));
        vec![
            (
                "Waited",
                Percentiles {
                    p50: ms(720_000),
                    p90: ms(1_380_000),
                    p99: ms(1_560_000),
                    longest: ms(1_580_000),
                    scale,
                },
            ),
            ("Ran", Percentiles { p50: ms(590), p90: ms(890), p99: ms(2_400), longest: ms(11_800), scale }),
        ]
    }

    fn rails(&self) -> Rails {
        let rail = |name: &str, value: &str, meter| Rail { name: name.into(), value: value.into(), meter };
        Rails {
            rails: vec![
                rail("Slots", "28 of 40", Meter::new(Tone::Run, 28.0, 40.0)),
                rail("Tokens of psp", "0 of 20", Meter::new(Tone::Warn, 0.0, 20.0)),
                rail("Connections", "4 of 20", Meter::new(Tone::Run, 4.0, 20.0)),
            ],
        }
    }

    fn wave(&self, base: f64, swing: f64, steps: u32) -> Vec<Option<f64>> {
        (0..steps)
            .map(|step| Some(base + swing * (f64::from(step) * 0.7).sin() * (f64::from(step) * 0.13).cos()))
            .collect()
    }

    fn bars_chart(&self) -> Chart {
        let drain = (0..60)
            .map(|step| Some(if step < 33 { 0.0 } else { (f64::from(step) - 32.0).min(4.0) * 99.5 }))
            .collect();
        let failed =
            (0..60).map(|step| Some(if step < 26 { 0.0 } else { 3.0 + f64::from(step * 7 % 5) })).collect();
        let series = |name: &str, tone, shape, values| Series { name: name.into(), tone, shape, values };
        Chart::new(
            "Jobs ended per second in the last hour: about 27 until 14:05, then about 425, of which 398 are children of regeo. Failures began at 13:58.",
            self.clock(),
            self.ago(3_600),
            Duration::from_secs(60),
            Unit::Rate,
            vec![
                series("ended", Tone::Ok, Shape::Bars, self.wave(27.0, 4.0, 60)),
                series("children of regeo", Tone::Ok, Shape::Part, drain),
                series("failed attempts", Tone::Bad, Shape::Below, failed),
            ],
        )
        .mark(self.ago(34 * 60), "first psp_unavailable", Some(Tone::Bad))
        .height(210.0)
    }

    fn area_chart(&self) -> Chart {
        let mut done = self.wave(391.0, 3.0, 26);
        done[8] = Some(181.0);
        done.extend(vec![None; 18]);
        let mut forecast = vec![None; 25];
        forecast.extend(vec![Some(398.0); 18]);
        forecast.push(Some(0.0));
        let series = |name: &str, tone, shape, values| Series { name: name.into(), tone, shape, values };
        Chart::new(
            "Children ended per second: 391 since 14:05, with a dip. At this rate the rest takes 16 minutes.",
            self.clock(),
            self.ago(26 * 60),
            Duration::from_secs(60),
            Unit::Rate,
            vec![
                series("ended", Tone::Run, Shape::Area, done),
                series("forecast", Tone::Run, Shape::Forecast, forecast),
            ],
        )
        .mark(self.frame.now, "now", None)
        .limit(400.0, "limit maps 400/s", Tone::Warn)
    }

    fn lines_chart(&self) -> Chart {
        let late = |base: f64| {
            self.wave(base, base / 12.0, 96)
                .into_iter()
                .enumerate()
                .map(move |(step, value)| {
                    value
                        .map(|value| if step > 84 { value * (1.0 + (step - 84) as f64 / 8.0) } else { value })
                })
                .collect()
        };
        let series =
            |name: &str, tone, values| Series { name: name.into(), tone, shape: Shape::Line, values };
        Chart::new(
            "How long jobs ran in 24 hours: p50 0.2 s, p95 0.9 s, p99 2 s, and twice that in the last hours.",
            self.clock(),
            self.ago(86_400),
            Duration::from_secs(900),
            Unit::Span,
            vec![
                series("p50", Tone::Run, late(0.21)),
                series("p95", Tone::Warn, late(0.9)),
                series("p99", Tone::Bad, late(2.0)),
            ],
        )
    }

    fn sparks(&self) -> Vec<Spark> {
        let spark = |tone, values: &[f64], sentence: &str| Spark {
            tone,
            values: values.to_vec(),
            sentence: sentence.into(),
        };
        vec![
            spark(Tone::Run, &[3.0, 4.0, 3.0, 5.0, 4.0, 6.0, 5.0, 5.0], "steady"),
            spark(Tone::Bad, &[0.0, 0.0, 0.0, 1.0, 3.0, 6.0, 5.0, 8.0], "rising"),
            spark(Tone::Idle, &[0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "once"),
        ]
    }

    fn calendar(&self) -> Calendar {
        let (from, to) = calendar::window(self.frame.now);
        let now = self.frame.now;
        let ticks = |minutes: u64, missed: u64| -> Vec<(Time, TickState)> {
            let step = Duration::from_secs(minutes * 60);
            let count = u32::try_from(24 * 60 / minutes).unwrap_or(0);
            let state = |at| match at {
                at if at > now => TickState::Coming,
                at if at > now - Duration::from_secs(missed * minutes * 60) => TickState::Missed,
                _ => TickState::Fired,
            };
            (0..count)
                .map(|number| from + Duration::from_secs(1_680) + step * number)
                .map(|at| (at, state(at)))
                .collect()
        };
        let row = |name: &str, rule: &str, ticks, note: (Option<Tone>, &str)| CalendarRow {
            name: name.into(),
            href: "/schedules".into(),
            pill: None,
            rule: rule.into(),
            ticks,
            next: Html::words("next ").add(self.clock().ago(now + Duration::from_secs(1_672))),
            note: (note.0, Html::words(note.1)),
        };
        let mut paused = row("newsletter", "0 9 * * mon", vec![], (None, "1 tick skipped since 12 Nov"));
        paused.pill = Some(Pill::paused());
        let rows = vec![
            row(
                "customs-sync",
                "every 30 minutes",
                ticks(30, 3),
                (Some(Tone::Bad), "3 missed: the last job runs"),
            ),
            row("pulse", "every 5 minutes", ticks(5, 0), (None, "72 fired, 15 ms late at most")),
            row(
                "fx-rates",
                "0 8,12,16 * * mon-fri in Europe/Berlin",
                ticks(240, 0),
                (None, "the last took 2.1 s"),
            ),
            paused,
        ];
        Calendar { clock: self.clock(), from, to, rows }
    }

    fn notes(&self) -> Vec<Note> {
        vec![
            Note::warning(
                Html::new()
                    .add(Html::words("They will probably fail again. "))
                    .text("0 of the last 71 attempts of ")
                    .code("charge")
                    .text(" succeeded. ")
                    .link("/failures", "See the group"),
            ),
            Note::error(Html::words("The store did not answer within 5 s. Nothing was changed; try again.")),
            Note::info(Html::words("This list shows jobs that ended in the last 30 days.")),
        ]
    }

    fn messages(&self) -> Vec<Message> {
        vec![
            Message {
                tone: Tone::Ok,
                text: Html::words("48 jobs were retried. ").link("/audit", "See the audit log"),
            },
            Message {
                tone: Tone::Bad,
                text: Html::words("The job was cancelled by jonas before. Nothing was changed."),
            },
        ]
    }

    fn blank(&self) -> Blank {
        Blank {
            icon: Icon::Jobs,
            title: "No job matches these filters".into(),
            text: Html::words("1,204 jobs match without the filter “kind charge”."),
            actions: vec![
                Action::link("Remove it", "/components"),
                Action::link("Clear all", "/components").quiet(),
            ],
        }
    }

    fn actions(&self) -> Vec<Action> {
        vec![
            Action::link("Primary", "/components").primary(),
            Action::link("Retry…", "/components?preview=retry")
                .icon(Icon::Retry)
                .command("Retry 61 failed jobs…")
                .key('r'),
            Action::post("Resume", "/queues/mail/resume", &self.frame.csrf),
            Action::link("Cancel…", "/components?preview=cancel").danger(),
            Action::link("Quiet", "/components").quiet(),
            Action::link("Small", "/components").small(),
        ]
    }

    /// Numbers, durations and text as the pages write them.
    fn formats(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "Numbers",
                format!(
                    "{}, {}, {}",
                    thousands(1_234_567),
                    counted(1, "child", "children"),
                    percent(9_995, 10_000)
                ),
            ),
            ("Rates", format!("{}, {}, {}", rate(398.0), rate(0.4), rate(0.04))),
            (
                "Durations",
                format!(
                    "{}, {}, {}",
                    span(Duration::from_millis(590)),
                    span(Duration::from_secs(973)),
                    span(Duration::from_secs(187_200))
                ),
            ),
            ("Sizes", format!("{}, {}", bytes(412), bytes(3 << 20))),
        ]
    }

    fn long_text(&self) -> Html {
        Html::part(Text::long(
            &"upstream connect error or disconnect/reset before headers\nreset reason: connection timeout\n"
                .repeat(20),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::frame::{self, Preferences, Theme, User};

    fn frame(preferences: Preferences) -> Frame {
        let count = |id: &str| match id {
            "branches" => Some(("4".to_owned(), false)),
            "failures" => Some(("300".to_owned(), true)),
            _ => None,
        };
        Frame {
            title: "Components".into(),
            here: "overview",
            path: "/components".into(),
            nav: frame::navigation(count),
            user: Some(User { name: "mira".into(), role: "operator".into() }),
            may_act: true,
            may_administer: true,
            csrf: "token".into(),
            preferences,
            now: "2026-11-19T14:32:08Z".parse().expect("a time"),
            place: "production".into(),
            build: "0.1.0 · PostgreSQL".into(),
            live: Some("/live?page=components".into()),
            message: None,
        }
    }

    fn page(preferences: Preferences, is_previewed: bool) -> String {
        frame::render(&Components::new(frame(preferences), is_previewed)).expect("a page")
    }

    fn dark() -> Preferences {
        Preferences { theme: Some(Theme::Dark), ..Preferences::default() }
    }

    /// Writes the page to `target/components`, with its assets, to see it in a browser.
    #[test]
    fn each_part_is_shown_once() {
        let html = page(Preferences::default(), false);
        let folder = std::env::current_exe()
            .expect("a path")
            .ancestors()
            .nth(3)
            .expect("the target folder")
            .join("components");
        std::fs::create_dir_all(&folder).expect("a folder");
        let (light, absolute) = (
            Preferences::default(),
            Preferences { absolute_times: true, utc: true, ..Preferences::default() },
        );
        for (name, preferences, is_previewed) in [
            ("light", light, false),
            ("dark", dark(), false),
            ("drawer", light, true),
            ("absolute", absolute, false),
        ] {
            std::fs::write(folder.join(format!("{name}.html")), page(preferences, is_previewed))
                .expect("a file");
        }
        for part in [
            "class=\"why\"",
            "class=\"timeline\"",
            "class=\"calendar\"",
            "class=\"item-map\"",
            "class=\"diagram\"",
            "class=\"tree\"",
            "class=\"bulk\"",
        ] {
            assert!(html.contains(part), "{part} is not shown");
        }
    }

    #[test]
    fn the_page_obeys_the_content_security_policy() {
        let html = page(dark(), true);
        assert!(!html.contains(" style=\"") && !html.contains("<style"), "a style within the page");
        assert!(
            !html.contains(" onclick=")
                && html.matches("<script").count() == html.matches("<script src=").count()
        );
        assert!(!html.contains("javascript:"));
    }

    #[test]
    fn ids_are_unique() {
        let html = page(Preferences::default(), true);
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for tag in html.split('<').filter(|tag| tag.contains(" data-live")) {
            let tag = tag.split('>').next().unwrap_or_default();
            assert!(tag.contains(" id=\"") || tag.starts_with("html "), "{tag} cannot be updated");
        }
        // Icons that are used are there.
        for name in html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(ids.contains(&name) || name == "main", "#{name} is not in the page");
        }
    }
}
