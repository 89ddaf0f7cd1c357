//! The text format of Prometheus: families of samples, each with a help text and a type.

use std::fmt::{Display, Write as _};

use super::histogram::Histogram;

/// A page of metrics that is being written.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    /// The name of the family that samples are added to.
    family: String,
}

/// Names and values of labels; values are escaped here.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    /// Begins a family of the type `type_name`; its samples follow.
    pub(crate) fn family(&mut self, name: &str, type_name: &str, help: &str) -> &mut Exposition {
        self.family = format!("windlass_{name}");
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP windlass_{name} {help}"));
        self.line(format_args!("# TYPE windlass_{name} {type_name}"));
        self
    }

    /// Adds one sample to the family.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Exposition {
        let line = format!("{}{} {value}", self.family, braces(labels, None));
        self.line(line);
        self
    }

    /// Adds a family of one sample.
    pub(crate) fn single(&mut self, name: &str, type_name: &str, help: &str, value: impl Display) {
        self.family(name, type_name, help).sample(&[], value);
    }

    /// Adds one histogram to the family.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Exposition {
        // Read once, so that a value recorded meanwhile does not make the last bucket and the count differ.
        let (sum, buckets) = (histogram.sum(), histogram.cumulative());
        for (bound, count) in &buckets {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let line = format!("{}_bucket{} {count}", self.family, braces(labels, Some(&bound)));
            self.line(line);
        }
        let count = buckets.last().map_or(0, |(_, count)| *count);
        let labels = braces(labels, None);
        let lines = format!("{0}_sum{labels} {sum}\n{0}_count{labels} {count}", self.family);
        self.line(lines);
        self
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// The text of the page.
    pub(crate) fn text(self) -> String {
        self.text
    }
}

/// Labels in braces, with the bound of a bucket last.
fn braces(labels: Labels<'_>, bound: Option<&str>) -> String {
    let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
    let pairs: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::{super::histogram::BATCH_SIZE, *};

    #[test]
    fn special_characters_in_labels_and_help_are_escaped() {
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
        let (sizes, mut page) = (Histogram::new(BATCH_SIZE), Exposition::default());
        sizes.record(2);
        sizes.record(5_000);
        page.family("size", "histogram", "sizes").histogram(&[("kind", "a")], &sizes);
        let text = page.text();
        let end = "windlass_size_bucket{kind=\"a\",le=\"1000\"} 1\nwindlass_size_bucket{kind=\"a\",le=\"+Inf\"} 2\n\
                   windlass_size_sum{kind=\"a\"} 5002\nwindlass_size_count{kind=\"a\"} 2\n";
        assert!(text.ends_with(end), "{text}");
    }
}
