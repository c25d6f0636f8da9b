//! Stop strings: where a text ends because the request says so.
//!
//! All stop strings are looked for at once, byte by byte (an Aho-Corasick automaton, built once for a request). The
//! stop that is complete first wins, whichever is listed first; of those complete at the same byte, the longest.
//! That makes the result independent of how the text was cut into deltas. Held back is only a tail that is the start
//! of a stop string, so at most one byte less than the longest.

use std::collections::VecDeque;

/// What is certain after a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emit<'a> {
    /// Text to hand on.
    pub text: &'a str,
    /// The stop string that ended the text just now.
    pub stopped: Option<&'a str>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Where a byte leads, as far as stop strings go on.
    children: Vec<(u8, usize)>,
    /// The longest proper tail of this node's text that starts a stop string.
    fallback: usize,
    /// Bytes of this node's text.
    depth: usize,
    /// The longest stop string that this node's text ends with.
    stop: Option<usize>,
}

/// Watches a text for stop strings.
#[derive(Clone, Debug)]
pub struct StopChecker {
    stops: Vec<String>,
    nodes: Vec<Node>,
    include_stop: bool,
    at: usize,
    /// Text that starts a stop string and may become one.
    held: String,
    emitted: String,
    is_stopped: bool,
}

impl StopChecker {
    /// Watches for these; empty ones are ignored. With `include_stop` the stop string itself belongs to the text.
    #[must_use]
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>, include_stop: bool) -> Self {
        let stops: Vec<String> =
            stops.into_iter().map(Into::into).filter(|stop: &String| !stop.is_empty()).collect();
        let nodes = automaton(&stops);
        let (held, emitted) = (String::new(), String::new());
        Self { stops, nodes, include_stop, at: 0, held, emitted, is_stopped: false }
    }

    /// Takes the next piece of text. After a stop, everything is dropped.
    pub fn push(&mut self, delta: &str) -> Emit<'_> {
        self.advance(delta, true)
    }

    /// Takes a piece of text that cannot end the sequence yet (before `min_tokens`). A stop string that is complete in
    /// it is passed over; one that begins in it can still be completed later.
    pub fn pass(&mut self, delta: &str) -> &str {
        self.advance(delta, false).text
    }

    /// Gives what is held back. For the end of a sequence.
    pub fn flush(&mut self) -> &str {
        self.emitted.clear();
        self.emitted.push_str(&self.held);
        self.held.clear();
        self.at = 0;
        &self.emitted
    }

    /// Whether a stop string was found.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn advance(&mut self, delta: &str, may_stop: bool) -> Emit<'_> {
        self.emitted.clear();
        if self.is_stopped {
            return Emit { text: "", stopped: None };
        }
        if self.stops.is_empty() {
            self.emitted.push_str(delta);
            return Emit { text: &self.emitted, stopped: None };
        }
        let held = self.held.len();
        self.held.push_str(delta);
        for (index, byte) in delta.bytes().enumerate() {
            self.at = step(&self.nodes, self.at, byte);
            let found = self.nodes.get(self.at).and_then(|node| node.stop).filter(|_| may_stop);
            if let Some(stop) = found.and_then(|found| self.stops.get(found)) {
                let end = held + index + 1;
                let keep = if self.include_stop { end } else { end.saturating_sub(stop.len()) };
                self.emitted.push_str(self.held.get(..keep).unwrap_or(""));
                self.held.clear();
                self.is_stopped = true;
                return Emit { text: &self.emitted, stopped: Some(stop) };
            }
        }
        let tail = self.nodes.get(self.at).map_or(0, |node| node.depth);
        let certain = self.held.len().saturating_sub(tail);
        self.emitted.push_str(self.held.get(..certain).unwrap_or(""));
        self.held.drain(..certain);
        Emit { text: &self.emitted, stopped: None }
    }
}

/// The node for the longest tail of (this node's text, then `byte`) that starts a stop string.
fn step(nodes: &[Node], from: usize, byte: u8) -> usize {
    let mut at = from;
    loop {
        let Some(node) = nodes.get(at) else { return 0 };
        if let Some(&(_, child)) = node.children.iter().find(|(label, _)| *label == byte) {
            return child;
        }
        if at == 0 {
            return 0;
        }
        at = node.fallback;
    }
}

fn automaton(stops: &[String]) -> Vec<Node> {
    let mut nodes = vec![Node::default()];
    for (index, stop) in stops.iter().enumerate() {
        let mut at = 0;
        for (before, byte) in stop.bytes().enumerate() {
            let known = nodes[at].children.iter().find(|(label, _)| *label == byte);
            at = if let Some(&(_, child)) = known {
                child
            } else {
                let child = nodes.len();
                nodes[at].children.push((byte, child));
                nodes.push(Node { depth: before + 1, ..Node::default() });
                child
            };
        }
        nodes[at].stop.get_or_insert(index);
    }
    // Breadth first: a fallback is shorter than its node, so it is complete before the node needs it.
    let mut queue: VecDeque<usize> = nodes[0].children.iter().map(|&(_, child)| child).collect();
    while let Some(at) = queue.pop_front() {
        for (byte, child) in nodes[at].children.clone() {
            nodes[child].fallback = step(&nodes, nodes[at].fallback, byte);
            queue.push_back(child);
        }
        let inherited = nodes[nodes[at].fallback].stop;
        nodes[at].stop = nodes[at].stop.or(inherited);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Text given out, and the stop found, for a text cut into these pieces.
    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (String, Option<String>) {
        let mut checker = StopChecker::new(stops.iter().copied(), include);
        let mut text = String::new();
        let mut found = None;
        for piece in pieces {
            let emit = checker.push(piece);
            text.push_str(emit.text);
            found = found.or(emit.stopped.map(str::to_owned));
        }
        text.push_str(checker.flush());
        (text, found)
    }

    #[test]
    fn ends_before_or_after_a_stop_that_spans_deltas() {
        let pieces = ["Hello", " wo", "rl", "d, again"];
        assert_eq!(run(&["world"], false, &pieces), ("Hello ".into(), Some("world".into())));
        assert_eq!(run(&["world"], true, &pieces), ("Hello world".into(), Some("world".into())));
        assert_eq!(run(&["", "words"], false, &pieces), ("Hello world, again".into(), None));
        assert_eq!(run(&[], false, &pieces), ("Hello world, again".into(), None));
    }

    #[test]
    fn holds_back_no_more_than_a_beginning() {
        let mut checker = StopChecker::new(["\n\nUser:"], false);
        assert_eq!(checker.push("one\n").text, "one");
        assert_eq!(checker.push("two\n\nUs").text, "\ntwo");
        assert_eq!(checker.push("age\n\n").text, "\n\nUsage");
        assert_eq!(checker.flush(), "\n\n");
    }

    #[test]
    fn the_stop_that_is_complete_first_wins_and_then_the_longest() {
        assert_eq!(run(&["abcd", "bc"], false, &["xabcd"]), ("xa".into(), Some("bc".into())));
        assert_eq!(run(&["c", "abc", "bc"], false, &["xabc"]), ("x".into(), Some("abc".into())));
        assert_eq!(run(&["aab"], false, &["aa", "aab"]), ("aa".into(), Some("aab".into())));
    }

    #[test]
    fn text_before_min_tokens_cannot_stop_but_may_begin_a_stop() {
        let mut checker = StopChecker::new(["END"], false);
        assert_eq!(checker.pass("a END b E"), "a END b ");
        let emit = checker.push("ND c");
        assert_eq!((emit.text, emit.stopped), ("", Some("END")));
        assert_eq!(checker.push("more").text, "");
        assert!(checker.is_stopped());
    }

    /// The rule as a definition: the shortest beginning of the text that ends with a stop string.
    fn naive(stops: &[String], include: bool, text: &str) -> (String, Option<String>) {
        for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let ends = stops.iter().filter(|stop| !stop.is_empty() && text[..end].ends_with(stop.as_str()));
            if let Some(stop) = ends.max_by_key(|stop| stop.len()) {
                let keep = if include { end } else { end - stop.len() };
                return (text[..keep].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_text(
            text in "[abé日]{0,30}",
            stops in prop::collection::vec("[abé日]{0,5}", 0..4),
            cuts in prop::collection::vec(0_usize..40, 0..8),
            include: bool,
        ) {
            let mut borders: Vec<usize> =
                cuts.into_iter().filter(|&cut| cut <= text.len() && text.is_char_boundary(cut)).collect();
            borders.extend([0, text.len()]);
            borders.sort_unstable();
            let pieces: Vec<&str> = borders.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let listed: Vec<&str> = stops.iter().map(String::as_str).collect();
            prop_assert_eq!(run(&listed, include, &pieces), naive(&stops, include, &text));
        }
    }
}
