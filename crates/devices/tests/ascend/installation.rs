//! What an installation lacks is named.

use updraft_devices::ascend::{
    Chip, Compute, Library, LibraryError, OpenError, SearchPath, facts, footprint,
};

use super::children::{Child, in_child};
use super::models::{self, Kind};
use super::support::{NAMES, device, folder, library, open, options, simulated};
use updraft_devices::Device;

#[test]
fn facts_tell_the_chip_and_its_memory() {
    let facts = facts(library(), 0).unwrap();
    assert_eq!(facts.chip, Chip::from_soc(&facts.soc));
    assert!(
        facts.devices >= 1 && facts.memory_total >= facts.memory_free && facts.memory_free.0 > 0,
        "{facts:?}"
    );
}

#[test]
fn without_cann_the_error_says_what_was_tried_and_what_to_do() {
    let empty = folder("empty", &[]);
    let error = Library::load(&SearchPath::only(&empty)).unwrap_err();
    let message = error.to_string();
    for part in ["runtime", "libascendcl.so", "set_env.sh"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_library_that_is_no_library_is_named() {
    let broken = folder("broken", &NAMES[1..]);
    std::fs::write(broken.join("lib64/libascendcl.so"), "text").unwrap();
    let error = Library::load(&SearchPath::only(&broken)).unwrap_err();
    assert!(
        matches!(&error, LibraryError::Open { tried, .. } if tried[0].contains("lib64/libascendcl.so")),
        "{error}"
    );
}

#[test]
fn an_explicit_folder_without_cann_is_not_made_up_for_by_another() {
    let (partial, whole) = (folder("partial", &["libascendcl.so"]), folder("whole", &NAMES));
    let variable = |name: &str| (name == "ASCEND_HOME_PATH").then(|| whole.clone());
    let error = Library::load(&SearchPath::new(Some(&partial), &variable)).unwrap_err();
    let message = error.to_string();
    assert!(matches!(&error, LibraryError::Open { group: "operator base", .. }), "{message}");
    for part in [partial.to_str().unwrap(), "libnnopbase.so and libopapi.so or libopapi_*.so"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains(whole.to_str().unwrap()), "{message}");
}

#[test]
fn all_libraries_come_from_the_first_installation_that_is_complete() {
    let (partial, whole) = (folder("first", &[]), folder("second", &NAMES));
    // Would be opened, and break, if libraries were taken wherever they lie.
    std::fs::write(partial.join("lib64/libascendcl.so"), "text").unwrap();
    std::fs::write(partial.join("lib64/libopapi_nn.so"), "text").unwrap();
    let variable = |name: &str| match name {
        "ASCEND_HOME_PATH" => Some(partial.clone()),
        "ASCEND_TOOLKIT_HOME" => Some(whole.clone()),
        _ => None,
    };
    let library = Library::load(&SearchPath::new(None, &variable)).unwrap();
    assert!(library.has_operator("aclnnMm"));
    // Whatever is wrong with a complete one is said, not passed over.
    std::os::unix::fs::symlink(simulated(), partial.join("lib64/libnnopbase.so")).unwrap();
    let error = Library::load(&SearchPath::new(None, &variable)).unwrap_err();
    assert!(error.to_string().contains(partial.to_str().unwrap()), "{error}");
}

#[test]
fn every_missing_function_is_named() {
    // Some library that is surely no CANN, under CANN's name.
    let other = folder("other", &NAMES[1..]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
    std::os::unix::fs::symlink(libc.unwrap(), other.join("lib64/libascendcl.so")).unwrap();
    let error = Library::load(&SearchPath::only(&other)).unwrap_err();
    let LibraryError::Symbols { missing, .. } = &error else { panic!("{error}") };
    assert!(missing.contains(&"aclInit") && missing.contains(&"aclmdlRICaptureBegin"), "{error}");
    assert!(!missing.contains(&"aclCreateTensor"), "{error}");
}

#[test]
fn libraries_split_by_domain_are_found() {
    let split =
        folder("split", &["libacl_rt.so", "libnnopbase.so", "libopapi_nn.so", "libopapi_transformer.so"]);
    let library = Library::load(&SearchPath::only(&split)).unwrap();
    assert!(library.has_operator("aclnnMm"));
    assert!(!library.has_operator("aclnnNoSuchOperator"));
    assert!(simulated().exists());
}

#[test]
fn options_that_no_device_can_meet_are_refused_with_the_reason() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    options.block_size = updraft_core::Tokens(24);
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(error.to_string().contains("multiple of 16"), "{error}");
    options.block_size = updraft_core::Tokens(1024);
    open(&program, &tensors, &options).unwrap();
}

#[test]
fn blocks_that_attention_does_not_take_for_unusual_heads_are_refused() {
    let program = models::program(Kind::ODD_HEADS);
    for (size, fits) in [(16, false), (64, false), (128, true), (512, true), (640, false)] {
        let options =
            updraft_devices::ascend::AscendOptions { block_size: updraft_core::Tokens(size), ..options() };
        let message = footprint(&program, &options).map_err(|error| error.to_string());
        match message {
            Ok(_) => assert!(fits, "{size}"),
            Err(message) => {
                assert!(
                    !fits && message.contains("96 values") && message.contains("128"),
                    "{size}: {message}"
                );
            }
        }
    }
}

#[test]
fn a_damaged_or_missing_tensor_is_named() {
    let program = models::program(Kind::LLAMA);
    let mut tensors = models::tensors(Kind::LLAMA);
    let (_, _, bytes) = tensors.tensors.get_mut("1.down").unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&[0xff; 4]);
    let error = open(&program, &tensors, &options()).unwrap_err();
    assert!(error.to_string().contains("\"1.down\"") && error.to_string().contains("damaged"), "{error}");
    tensors.tensors.remove("1.down");
    let error = open(&program, &tensors, &options()).unwrap_err();
    assert!(error.to_string().contains("lacks the tensor \"1.down\""), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_a_fault() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    options.ordinal = 77;
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(error.to_string().contains("107001"), "{error}");
}

#[test]
fn an_old_chip_is_told_what_it_lacks() {
    let child = Child::new("installation::child_on_a_310p").set("ACL_SIM_SOC", "Ascend310P3");
    in_child(child);
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_on_a_310p() {
    let (program, tensors) = (models::program(Kind::LLAMA), models::tensors(Kind::LLAMA));
    let mut options = options();
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(matches!(error, OpenError::Compute { chip: Chip::P310P, .. }), "{error}");
    options.compute = Compute::F16;
    let error = open(&program, &tensors, &options).unwrap_err();
    assert!(
        matches!(&error, OpenError::MissingOperator(missing) if missing.wanted.contains("since CANN")),
        "{error}"
    );
}

#[test]
fn a_device_that_captures_every_kind_of_graph_has_no_limit() {
    let device = device(Kind::LLAMA);
    assert_eq!((device.graph_limit(), device.properties().graph_kinds.len()), (None, 3));
    let budget = device.properties().graph_budget;
    assert!(budget.bytes.0 > 0 && budget.streams > 0, "{budget:?}");
}
