//! Opening a device: what is checked, in which order memory is laid out, which graphs it can capture.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use updraft_core::Bytes;
use updraft_core::graphs::GraphKind;
use updraft_core::program::Program;
use updraft_core::recovery::RecoveryClass;
use updraft_kernels::tensor::TensorSource;

use super::device::{AscendDevice, Running};
use super::error::{Fault, OpenError};
use super::library::{Chip, Library};
use super::lower::{Compute, Model, Plan, Prepared};
use super::operators::{Installed, Operators};
use super::options::{AscendOptions, check_options, sizes};
use super::runtime::{Api, DeviceHandle, Pool, Stream, Workspace, start};
use super::step::Staging;
use crate::cpu::Loaded;
use crate::inputs::Limits;
use crate::{GraphCost, Progress, Properties};

/// Streams that graphs leave to everything else.
const STREAM_RESERVE: u32 = 64;

impl AscendDevice {
    /// Opens a device on the calling thread, lays out its memory and loads the weights.
    ///
    /// # Errors
    /// When the installation lacks something that the program needs, a weight is missing or damaged, or the device
    /// refuses.
    pub fn open(
        library: &Arc<Library>,
        program: &Program,
        source: &dyn TensorSource,
        options: &AscendOptions,
        progress: &dyn Fn(Loaded),
    ) -> Result<Self, OpenError> {
        check_options(program, options)?;
        start(library)?;
        let device = format!("ascend:{}", options.ordinal);
        let api = Rc::new(Api { library: Arc::clone(library), device: device.clone() });
        let handle = DeviceHandle::open(&api, options.ordinal)?;
        let soc = handle.soc();
        let chip = Chip::from_soc(&soc);
        if let Some(chip) = chip.filter(|chip| options.compute == Compute::Bf16 && !chip.has_bf16()) {
            return Err(OpenError::Compute { chip, compute: options.compute.as_str() });
        }
        let operators = Operators::find(&api);
        let has = |name: &str| operators.has(name) && !options.avoid.iter().any(|avoided| avoided == name);
        let plan = Plan::of(program, &Installed { has: &has, chip, version: library.version() })?;
        let sizes = sizes(program, options);
        let mut pool = Pool::new(&api);
        let signs = Progress::default();
        let loaded = |sofar: Loaded| {
            signs.tick();
            progress(sofar);
        };
        let model =
            Model::load(operators, plan, program, source, options.compute, sizes, &mut pool, &loaded)?;
        let vocab = program.vocab as usize;
        let mut opened = Self {
            main: Stream::new(&api)?,
            update: Stream::new(&api)?,
            group: None,
            graphs: BTreeMap::new(),
            forgotten: Vec::new(),
            prepared: [Prepared::default(), Prepared::default()],
            workspace: Workspace::new(&api),
            staging: Staging::new(&api, &sizes, vocab)?,
            pool,
            limits: Limits {
                rows: sizes.rows,
                logit_rows: sizes.logit_rows,
                blocks: sizes.blocks,
                block_size: sizes.block_size,
                tokens: model.token_limit(),
                positions: sizes.positions,
            },
            properties: Properties {
                name: device,
                hardware: soc,
                vocab,
                graph_kinds: Vec::new(),
                graph_budget: GraphCost::default(),
                graph_name: "ACL graph",
            },
            graph_limit: None,
            progress: signs,
            running: Running::Nothing,
            replaying: None,
            failed: None,
            logit_rows: 0,
            model,
            api,
            handle,
        };
        opened.find_graph_kinds(chip)?;
        Ok(opened)
    }

    fn find_graph_kinds(&mut self, chip: Option<Chip>) -> Result<(), Fault> {
        if let Some(chip) = chip.filter(|chip| !chip.has_graphs()) {
            self.graph_limit = Some(format!("{} captures no graphs", chip.name()));
            return Ok(());
        }
        self.properties.graph_kinds = match self.streams().probe() {
            Ok(()) => vec![GraphKind::Decode, GraphKind::Mixed, GraphKind::Piecewise],
            // What only says that this cannot be done here; anything else is a device in trouble.
            Err(fault) if matches!(fault.class, RecoveryClass::Unsupported | RecoveryClass::Graph) => {
                let why =
                    "attention in a graph cannot be given new lengths, which takes driver 25.0.RC1 or newer";
                self.graph_limit = Some(format!("{why}: {fault}"));
                vec![GraphKind::Piecewise]
            }
            Err(fault) => return Err(fault),
        };
        let left = self.handle.streams_left().or(chip.map(Chip::streams)).unwrap_or(0);
        let (free, _) = self.handle.memory()?;
        let bytes = Bytes(free / 4 * 3);
        self.properties.graph_budget = GraphCost { bytes, streams: left.saturating_sub(STREAM_RESERVE) };
        Ok(())
    }
}
