//! The text format that Prometheus reads: families of samples, each with what it means and of which type it is.

use std::fmt::{Display, Write as _};

use crate::histogram::Histogram;

/// A page of metrics being written.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    /// The family that samples belong to.
    name: String,
}

/// Pairs of a name and a value; values are escaped here.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family; its samples follow.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Exposition {
        self.name = format!("windlass_{name}");
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP windlass_{name} {help}"));
        self.line(format_args!("# TYPE windlass_{name} {kind}"));
        self
    }

    /// One sample of the family.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Exposition {
        let line = format!("{}{} {value}", self.name, braces(labels, None));
        self.line(line);
        self
    }

    /// A family of one sample.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// One histogram of the family.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Exposition {
        // Counted once: what is noted meanwhile must not make the last bucket and the count differ.
        let (sum, buckets) = (histogram.sum(), histogram.cumulative());
        for (bound, count) in &buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let line = format!("{}_bucket{} {count}", self.name, braces(labels, Some(&bound)));
            self.line(line);
        }
        let count = buckets.last().map_or(0, |(_, count)| *count);
        let labels = braces(labels, None);
        let lines = format!("{0}_sum{labels} {sum}\n{0}_count{labels} {count}", self.name);
        self.line(lines);
        self
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// The page.
    pub(crate) fn text(self) -> String {
        self.text
    }
}

/// Labels as they are written, with the bound of a bucket last.
fn braces(labels: Labels<'_>, bound: Option<&str>) -> String {
    let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
    let pairs: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::SIZE;

    #[test]
    fn whatever_a_label_holds_stays_on_its_line() {
        let mut page = Exposition::default();
        page.family("jobs", "gauge", "a \\ and\na line")
            .sample(&[("queue", "a\"b\\c\nd"), ("state", "ü")], 3);
        assert_eq!(
            page.text(),
            "# HELP windlass_jobs a \\\\ and\\na line\n# TYPE windlass_jobs gauge\n\
             windlass_jobs{queue=\"a\\\"b\\\\c\\nd\",state=\"ü\"} 3\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_infinity_and_its_count() {
        let (sizes, mut page) = (Histogram::new(SIZE), Exposition::default());
        sizes.note(2);
        sizes.note(5_000);
        page.family("size", "histogram", "sizes").histogram(&[("kind", "a")], &sizes);
        let text = page.text();
        let end = "windlass_size_bucket{kind=\"a\",le=\"1000\"} 1\nwindlass_size_bucket{kind=\"a\",le=\"+Inf\"} 2\n\
                   windlass_size_sum{kind=\"a\"} 5002\nwindlass_size_count{kind=\"a\"} 2\n";
        assert!(text.ends_with(end), "{text}");
    }
}
