//! The twin: a device without arithmetic, for trying out everything around one.
//!
//! It keeps the token of every slot, as a KV cache keeps keys, and its logits are a hash of what it reads through the
//! block table: a block that is shared wrongly, lost or stale changes the tokens. Steps take the time they are told
//! to, graphs are captured and replayed by name, and faults of any class come from a [`TwinFaults`] switch.

mod faults;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use updraft_core::graphs::{GraphKey, GraphKind};
use updraft_core::recovery::Moment;
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{Blocks, Bytes, TokenId, Tokens};

use crate::{Device, DeviceError, Graph, GraphCost, MemoryUse, Progress, Properties, Stream};

use faults::TwinMemory;
pub use faults::{TwinFault, TwinFaults, TwinTrouble};

/// Memory that a graph is said to take for each of its rows.
const GRAPH_ROW_BYTES: u64 = 1 << 10;
/// Streams that graphs may take, all together.
const GRAPH_STREAMS: u32 = 64;

/// Sizes and speed of a twin.
#[derive(Clone, Debug)]
pub struct TwinOptions {
    /// Number of the device, part of its name.
    pub ordinal: u32,
    /// Tokens it knows.
    pub vocab: u32,
    /// Blocks of its KV cache.
    pub blocks: Blocks,
    /// Tokens in a block.
    pub block_size: Tokens,
    /// Time that a step takes.
    pub step_time: Duration,
    /// Its troubles.
    pub faults: TwinFaults,
}

/// The device.
#[derive(Debug)]
pub struct TwinDevice {
    options: TwinOptions,
    properties: Properties,
    progress: Progress,
    slots: Vec<TokenId>,
    logits: Vec<Vec<f32>>,
    graphs: BTreeMap<GraphKey, Graph>,
    /// What the running step ends in.
    outcome: Result<(), DeviceError>,
    /// Time that the running step still takes.
    busy: Duration,
    #[expect(dead_code, reason = "what counts is its drop")]
    memory: TwinMemory,
}

impl TwinDevice {
    /// A twin with an empty cache.
    ///
    /// # Errors
    /// When its switch says that opening fails.
    pub fn new(options: TwinOptions) -> Result<Self, DeviceError> {
        options.faults.raise(&options.name(), Moment::Open)?;
        let memory = options.faults.take_memory(&options.name(), options.ordinal)?;
        let slots = vec![options.vocab; options.blocks.0 as usize * options.block_size.0 as usize];
        let properties = Properties {
            name: options.name(),
            hardware: "twin".to_owned(),
            vocab: options.vocab as usize,
            graph_kinds: vec![GraphKind::Decode, GraphKind::Mixed, GraphKind::Piecewise],
            graph_budget: GraphCost { bytes: Bytes(1 << 20), streams: GRAPH_STREAMS },
            graph_name: "twin graph",
        };
        Ok(Self {
            options,
            properties,
            progress: Progress::default(),
            slots,
            logits: Vec::new(),
            graphs: BTreeMap::new(),
            outcome: Ok(()),
            busy: Duration::ZERO,
            memory,
        })
    }

    fn start(&mut self, inputs: &StepInputs, moment: Moment) -> Result<(), DeviceError> {
        let trouble = self.options.faults.take(moment);
        self.logits.clear();
        if let Some(TwinTrouble::Refused(fault)) = trouble {
            return Err(fault.on(&self.properties.name).into());
        }
        for (slot, token) in inputs.slots.iter().zip(&inputs.token_ids) {
            let slots = self.slots.len();
            let place = self.slots.get_mut(slot.0 as usize).ok_or(DeviceError::OutOfRange {
                row: 0,
                what: "slot",
                value: slot.0 as usize,
                limit: slots,
            })?;
            *place = *token;
        }
        for row in &inputs.logit_rows {
            let span = span_of(inputs, *row)?;
            let seen = self.context(inputs, span, *row)?;
            self.logits.push(logits_after(seen.into_iter(), self.options.vocab));
        }
        self.busy = self.options.step_time;
        self.outcome = Ok(());
        match trouble {
            None | Some(TwinTrouble::Refused(_)) => {}
            Some(TwinTrouble::Fault(fault)) => {
                self.logits.clear();
                self.outcome = Err(fault.on(&self.properties.name).into());
            }
            Some(TwinTrouble::Hang(time)) => self.busy = time,
            Some(TwinTrouble::WrongResult) => self.logits.iter_mut().for_each(|row| row.reverse()),
        }
        Ok(())
    }

    /// Tokens of a sequence up to a row, read through its block table.
    fn context(
        &self,
        inputs: &StepInputs,
        span: &SequenceSpan,
        row: u32,
    ) -> Result<Vec<TokenId>, DeviceError> {
        let position = span.context - span.row_count + (row - span.row_start);
        let table = inputs.block_tables.iter().skip(span.table_start as usize).take(span.table_len as usize);
        let table: Vec<usize> = table.map(|block| block.0 as usize).collect();
        let block_size = self.options.block_size.0;
        (0..=position)
            .map(|at| {
                let block = table.get((at / block_size) as usize).copied().unwrap_or(usize::MAX);
                let slot =
                    block.saturating_mul(block_size as usize).saturating_add((at % block_size) as usize);
                self.slots.get(slot).copied().ok_or(DeviceError::OutOfRange {
                    row: row as usize,
                    what: "block",
                    value: block,
                    limit: self.options.blocks.0 as usize,
                })
            })
            .collect()
    }
}

impl Device for TwinDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> MemoryUse {
        let graphs = self.graphs.values().map(|graph| graph.cost.bytes.0).sum();
        MemoryUse {
            kv: Bytes(size_of_val(self.slots.as_slice()) as u64),
            graphs: Bytes(graphs),
            ..Default::default()
        }
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn stream(&mut self) -> &mut dyn Stream {
        self
    }

    fn logits(&self, row: usize) -> &[f32] {
        &self.logits[row]
    }

    fn graph_cost(&self, key: GraphKey) -> GraphCost {
        GraphCost { bytes: Bytes(GRAPH_ROW_BYTES * u64::from(key.rows)), streams: 1 }
    }

    fn repair(&mut self) -> Result<(), DeviceError> {
        self.graphs.clear();
        self.outcome = Ok(());
        self.busy = Duration::ZERO;
        Ok(())
    }
}

impl Stream for TwinDevice {
    fn enqueue(&mut self, inputs: &StepInputs) -> Result<(), DeviceError> {
        let decodes = inputs.spans.iter().all(|span| span.row_count == 1);
        self.start(inputs, if decodes { Moment::Decode } else { Moment::Prefill })
    }

    fn capture(&mut self, key: GraphKey) -> Result<Graph, DeviceError> {
        self.options.faults.raise(&self.properties.name, Moment::Capture)?;
        let graph = Graph { key, cost: self.graph_cost(key), nodes: key.rows };
        self.graphs.insert(key, graph);
        self.progress.tick();
        Ok(graph)
    }

    fn replay(&mut self, key: GraphKey, inputs: &StepInputs) -> Result<(), DeviceError> {
        if !self.graphs.contains_key(&key) {
            return Err(DeviceError::NoGraph(key));
        }
        if inputs.rows() > key.rows as usize {
            return Err(DeviceError::TooMany { what: "rows", actual: inputs.rows(), max: key.rows as usize });
        }
        self.start(inputs, Moment::Replay)
    }

    fn forget(&mut self, key: GraphKey) {
        self.graphs.remove(&key);
    }

    fn synchronize(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        std::thread::sleep(self.busy.min(deadline));
        if self.busy > deadline {
            self.busy -= deadline;
            return Err(TwinFault::timeout().on(&self.properties.name).into());
        }
        self.busy = Duration::ZERO;
        self.progress.tick();
        std::mem::replace(&mut self.outcome, Ok(()))
    }
}

impl TwinOptions {
    fn name(&self) -> String {
        format!("twin:{}", self.ordinal)
    }
}

fn span_of(inputs: &StepInputs, row: u32) -> Result<&SequenceSpan, DeviceError> {
    let holds = |span: &&SequenceSpan| (span.row_start..span.row_start + span.row_count).contains(&row);
    inputs.spans.iter().find(holds).ok_or(DeviceError::OutOfRange {
        row: row as usize,
        what: "logit row",
        value: row as usize,
        limit: inputs.rows(),
    })
}

/// The logits after these tokens: what a twin of any size answers.
#[must_use]
pub fn logits_after(seen: impl Iterator<Item = TokenId>, vocab: u32) -> Vec<f32> {
    let hash = seen.fold(0xcbf2_9ce4_8422_2325_u64, |hash, token| {
        (hash ^ u64::from(token)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    });
    (0..u64::from(vocab))
        .map(|token| ((hash ^ token).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as f32)
        .collect()
}
