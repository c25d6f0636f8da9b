//! One topic: a list of bounded queues and the policy for a full one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// What a full queue means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest entry makes room: a late reader sees newer figures.
    DropOldest,
    /// The subscriber is cut off: it must not believe it saw everything.
    CutOff,
}

/// A typed topic.
#[derive(Debug)]
pub struct Topic<T> {
    name: &'static str,
    capacity: usize,
    when_full: WhenFull,
    queues: RwLock<Vec<Queue<T>>>,
    dropped: AtomicU64,
}

#[derive(Debug)]
struct Queue<T> {
    sender: flume::Sender<T>,
    /// The other end, only to take the oldest entry out. Absent where nothing may be dropped, so that a
    /// subscriber that left is noticed.
    oldest: Option<flume::Receiver<T>>,
}

/// The reading end of a topic. Clones share one queue.
#[derive(Debug)]
pub struct Subscription<T>(flume::Receiver<T>);

impl<T> Clone for Subscription<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Subscription<T> {
    /// Takes all that waits, without waiting for more.
    pub fn drain(&self) -> impl Iterator<Item = T> + '_ {
        self.0.drain()
    }

    /// Waits for the next entry; `None` once cut off and empty.
    pub async fn next(&self) -> Option<T> {
        self.0.recv_async().await.ok()
    }
}

impl<T: Clone> Topic<T> {
    /// A topic without subscribers.
    #[must_use]
    pub fn new(name: &'static str, capacity: usize, when_full: WhenFull) -> Self {
        Self { name, capacity, when_full, queues: RwLock::default(), dropped: AtomicU64::new(0) }
    }

    /// Name, as the drop counter's label.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Entries dropped, or subscribers cut off.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// A queue of all that is published from now on.
    pub fn subscribe(&self) -> Subscription<T> {
        let (sender, receiver) = flume::bounded(self.capacity);
        let oldest = (self.when_full == WhenFull::DropOldest).then(|| receiver.clone());
        self.queues.write().unwrap_or_else(PoisonError::into_inner).push(Queue { sender, oldest });
        Subscription(receiver)
    }

    /// Hands `entry` to every subscriber. Never blocks.
    pub fn publish(&self, entry: &T) {
        let mut late = false;
        for queue in self.queues.read().unwrap_or_else(PoisonError::into_inner).iter() {
            late |= self.offer(queue, entry).is_err();
        }
        if late {
            self.cut_off();
        }
    }

    fn offer(&self, queue: &Queue<T>, entry: &T) -> Result<(), ()> {
        let mut entry = entry.clone();
        loop {
            match (queue.sender.try_send(entry), &queue.oldest) {
                (Ok(()), _) => return Ok(()),
                (Err(flume::TrySendError::Full(back)), Some(oldest)) => {
                    entry = back;
                    if oldest.try_recv().is_ok() {
                        self.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
                (Err(_), _) => return Err(()),
            }
        }
    }

    fn cut_off(&self) {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|queue| {
            let full = queue.oldest.is_none() && queue.sender.is_full();
            if full {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            !full && !queue.sender.is_disconnected()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_keep_the_newest_entries() {
        let topic = Topic::new("t", 3, WhenFull::DropOldest);
        let reader = topic.subscribe();
        for entry in 0..10 {
            topic.publish(&entry);
        }
        assert_eq!(reader.drain().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(topic.dropped(), 7);
    }

    #[test]
    fn a_late_reader_of_records_is_cut_off_and_the_others_are_not() {
        let topic = Topic::new("t", 3, WhenFull::CutOff);
        let (late, prompt) = (topic.subscribe(), topic.subscribe());
        let mut seen = Vec::new();
        for entry in 0..10 {
            topic.publish(&entry);
            seen.extend(prompt.drain());
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(late.drain().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(topic.dropped(), 1);
        assert!(late.0.is_disconnected());
    }

    #[test]
    fn a_subscriber_that_left_is_forgotten() {
        let topic = Topic::new("t", 3, WhenFull::CutOff);
        drop(topic.subscribe());
        topic.publish(&1);
        assert!(topic.queues.read().unwrap().is_empty());
        assert_eq!(topic.dropped(), 0);
    }
}
