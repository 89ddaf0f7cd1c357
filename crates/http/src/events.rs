//! Server-sent events: parsed from the body of a response as it arrives.

use std::collections::VecDeque;

use crate::{Error, Response};

/// The most bytes of one event: a server that sends more without an end is not one of ours.
const MAX_EVENT: usize = 1 << 20;

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    response: Response,
    parser: Parser,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// What kind of event it is; `message` if the server names none.
    pub event: String,
    /// Its data; lines are separated by line feeds.
    pub data: String,
    /// The id to continue after, sent as `Last-Event-ID`.
    pub id: Option<String>,
}

impl Events {
    pub(crate) fn new(response: Response) -> Events {
        Events { response, parser: Parser::default() }
    }

    /// The next event; `None` at the end of the stream. Comments, which keep the connection alive, are skipped. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.parser.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(chunk) = self.response.chunk().await? else { return Ok(None) };
            if !self.parser.feed(&chunk) {
                return Err(Error::TooLarge { server: self.response.server().to_owned(), limit: MAX_EVENT });
            }
        }
    }
}

/// Cuts bytes into lines, and lines into events.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return, after which a line feed ends no other line.
    after_return: bool,
    event: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    events: VecDeque<Event>,
}

impl Parser {
    /// Adds bytes. Returns false if an event is too large.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    self.end_line(&String::from_utf8_lossy(&line));
                }
                byte => {
                    self.after_return = false;
                    self.line.push(*byte);
                }
            }
            if self.line.len() + self.data.len() > MAX_EVENT {
                return false;
            }
        }
        true
    }

    fn end_line(&mut self, line: &str) {
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data += value;
            }
            "id" => self.id = Some(value.to_owned()),
            // A comment has an empty field; unknown fields and `retry` are for other clients.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        if std::mem::take(&mut self.has_data) {
            let event = if event.is_empty() { "message".to_owned() } else { event };
            self.events.push_back(Event { event, data, id: self.id.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(chunks: &[&str]) -> Vec<Event> {
        let mut parser = Parser::default();
        assert!(chunks.iter().all(|chunk| parser.feed(chunk.as_bytes())));
        parser.events.into()
    }

    #[test]
    fn events_are_parsed_across_chunks_and_line_ends() {
        let text = "retry: 2000\n\n:\n\nid: a-1\nevent: job\ndata: {\"job\":1}\n\ndata: x\r\ndata: y\r\n\r\nevent: lost\n\n";
        let expected = [
            Event { event: "job".into(), data: "{\"job\":1}".into(), id: Some("a-1".into()) },
            Event { event: "message".into(), data: "x\ny".into(), id: Some("a-1".into()) },
        ];
        assert_eq!(parse(&[text]), expected);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(parse(&bytes), expected);
        assert_eq!(parse(&["data: not ended"]), []);
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut parser = Parser::default();
        assert!(parser.feed(&vec![b'x'; MAX_EVENT]));
        assert!(!parser.feed(b"x"));
    }

    /// What streams consist of, and anything else.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::sample::select(vec![
                "data: x",
                "data:",
                "event: job",
                "id: a-1",
                ":",
                "\r",
                "\n",
                "\n\n",
                "\r\n",
                "retry: 1",
                "é"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_alike_however_they_are_cut(pieces in prop::collection::vec(piece(), 0..30), cut in 1_usize..7) {
            let bytes = pieces.concat();
            let (mut whole, mut parts) = (Parser::default(), Parser::default());
            prop_assert!(whole.feed(&bytes));
            prop_assert!(bytes.chunks(cut).all(|chunk| parts.feed(chunk)));
            prop_assert_eq!(&whole.events, &parts.events);
            for event in &whole.events {
                prop_assert!(!event.event.is_empty() && !event.event.contains(['\r', '\n']));
                prop_assert!(!event.data.contains('\r'));
            }
        }

        #[test]
        fn events_are_read_as_they_were_written(data in "[^\r]{0,60}", name in "[a-z]{1,8}", id in "[0-9a-f]{1,8}-[0-9]{1,5}") {
            let lines: String = data.split('\n').map(|line| format!("data: {line}\n")).collect();
            let mut parser = Parser::default();
            let sent = format!("id: {id}\nevent: {name}\n{lines}\n");
            prop_assert!(parser.feed(sent.as_bytes()));
            let expected = Event { event: name, data, id: Some(id) };
            prop_assert_eq!(parser.events.pop_front(), Some(expected));
        }
    }
}
