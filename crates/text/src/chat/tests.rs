//! Templates against the reference renderings, and against templates that mean harm.

use serde_json::{Value as Json, json};

use super::*;

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Some("<s>".to_owned()), None).unwrap()
}

fn user(content: impl Into<Json>) -> Vec<Json> {
    vec![json!({"role": "user", "content": content.into()})]
}

fn render(source: &str, messages: &[Json]) -> Result<String, TextError> {
    template(source).render(&ChatInput { messages, ..ChatInput::default() })
}

fn print(expression: &str) -> String {
    render(&format!("{{{{ {expression} }}}}"), &[]).unwrap()
}

#[test]
fn renders_like_the_reference() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/chat/chat_cases.json");
    let file: Json = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let special = |key: &str| file[key].as_str().map(str::to_owned);
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() >= 71);
    for case in cases {
        let source = file["templates"][case["template"].as_str().unwrap()].as_str().unwrap();
        let template = ChatTemplate::new(source, special("bos_token"), special("eos_token")).unwrap();
        let got = template.render(&ChatInput {
            messages: case["messages"].as_array().unwrap(),
            tools: Some(&case["tools"]).filter(|tools| !tools.is_null()),
            documents: Some(&case["documents"]).filter(|documents| !documents.is_null()),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            continue_final_message: case["continue_final_message"].as_bool().unwrap(),
            kwargs: case["chat_template_kwargs"].as_object(),
        });
        match (got, case["expected"].as_str()) {
            (Ok(got), Some(expected)) => assert_eq!(got, expected, "{}", case["name"]),
            (Err(TextError::TemplateRefused { message }), None) => {
                assert_eq!(message, case["expected_error"].as_str().unwrap(), "{}", case["name"]);
            }
            (got, expected) => panic!("{}: {got:?} instead of {expected:?}", case["name"]),
        }
    }
}

#[test]
fn values_print_as_in_python() {
    assert_eq!(print("[true, none, 1.0, 'a']"), "[True, None, 1.0, 'a']");
    assert_eq!(print("'x' ~ false ~ (true | string)"), "xFalseTrue");
    assert_eq!(print("missing ~ '|'"), "|");
    assert_eq!(
        print("[none is iterable, 'a' is iterable, {} is sequence, 1 is iterable]"),
        "[False, True, True, False]"
    );
    assert_eq!(print("'a,b'.split(',')[-1].upper()"), "B");
    assert_eq!(print("bos_token ~ (eos_token is defined)"), "<s>False");
}

#[test]
fn json_is_pythons() {
    let value = r#"{'b': [1, 2.5, {}], 'a': "é<&>'\"\n", 'c': none}"#;
    assert_eq!(print(&format!("{value} | tojson")), r#"{"b": [1, 2.5, {}], "a": "é<&>'\"\n", "c": null}"#);
    assert_eq!(print("{'b': 1, 'a': [true]} | tojson(sort_keys=true)"), r#"{"a": [true], "b": 1}"#);
    assert_eq!(print("[1, {'a': []}] | tojson(indent=2)"), "[\n  1,\n  {\n    \"a\": []\n  }\n]");
    assert_eq!(print("[1, {'a': 2}] | tojson(separators=(',', ':'))"), r#"[1,{"a":2}]"#);
    assert_eq!(print("'é😀' | tojson(ensure_ascii=true)"), r#""\u00e9\ud83d\ude00""#);
    let error = render("{{ missing | tojson }}", &[]).unwrap_err();
    assert!(matches!(error, TextError::TemplateFailed { line: 1, .. }), "{error:?}");
}

#[test]
fn time_is_formatted() {
    let year = print("strftime_now('%Y')");
    assert!(year.len() == 4 && year.starts_with("20"), "{year}");
    assert!(print("strftime_now('%d %b %Y, %H:%M')").len() > 15);
}

#[test]
fn text_templates_get_text_and_part_templates_parts() {
    let text = "{% for m in messages %}{{ '[' + m['content'] + ']' }}{% endfor %}";
    let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    let list = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(template(text).format(), ContentFormat::Text);
    assert_eq!(template(parts).format(), ContentFormat::Parts);
    assert_eq!(template("{{ messages[0].content }}").format(), ContentFormat::Text);
    assert_eq!(render(text, &user(list.clone())).unwrap(), "[a\nb]");
    assert_eq!(render(parts, &user(list)).unwrap(), "ab");
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    assert!(matches!(render(text, &user(image)), Err(TextError::ChatInput { .. })));
}

#[test]
fn a_final_message_is_continued_where_its_content_ends() {
    let keeps = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}";
    let trims = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>\n{% endfor %}";
    let messages =
        vec![json!({"role": "user", "content": "x"}), json!({"role": "assistant", "content": " x "})];
    let go_on = |source: &str, messages: &[Json]| {
        template(source).render(&ChatInput { messages, continue_final_message: true, ..ChatInput::default() })
    };
    assert_eq!(go_on(keeps, &messages).unwrap(), "<user>x</>\n<assistant> x ");
    assert_eq!(go_on(trims, &messages).unwrap(), "<user>x</>\n<assistant>x");
    for (source, messages) in [("{{ messages[0].content }}", &messages[..]), (keeps, &[])] {
        assert!(matches!(go_on(source, messages), Err(TextError::ChatInput { .. })), "{source}");
    }
    let both = ChatInput {
        messages: &messages,
        add_generation_prompt: true,
        continue_final_message: true,
        ..ChatInput::default()
    };
    assert!(matches!(template(keeps).render(&both), Err(TextError::ChatInput { .. })));
}

#[test]
fn kwargs_are_variables_but_not_the_reserved_ones() {
    let kwargs = json!({"level": 3, "bos_token": "!"});
    let input = ChatInput { kwargs: kwargs.as_object(), ..ChatInput::default() };
    assert_eq!(template("{{ bos_token }}{{ level + 1 }}").render(&input).unwrap(), "!4");
    let kwargs = json!({"messages": []});
    let input = ChatInput { kwargs: kwargs.as_object(), ..ChatInput::default() };
    assert!(matches!(template("x").render(&input), Err(TextError::ChatInput { .. })));
}

#[test]
fn faults_of_a_template_are_told_apart() {
    let error = ChatTemplate::new("a\n{% if %}", None, None).unwrap_err();
    assert!(matches!(error, TextError::TemplateSyntax { line: 2, .. }), "{error:?}");
    let error = render("\n{{ messages[0].content.nope() }}", &user("a")).unwrap_err();
    assert!(matches!(error, TextError::TemplateFailed { line: 2, .. }), "{error:?}");
    let raises = "{% macro f() %}{{ raise_exception('no ' ~ messages | length) }}{% endmacro %}{{ f() }}";
    let error = render(raises, &user("a")).unwrap_err();
    assert!(matches!(&error, TextError::TemplateRefused { message } if message == "no 1"), "{error:?}");
}

#[test]
fn hostile_templates_end() {
    let doubling = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    let shared = "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    let endless = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    let nested = "{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}";
    for source in [doubling, shared, loops, endless, nested] {
        let error = render(source, &[]).unwrap_err();
        let expected =
            matches!(error, TextError::TemplateTooExpensive { .. } | TextError::TemplateFailed { .. });
        assert!(expected, "{source}: {error:?}");
    }
    let mut deep = json!("x");
    for _ in 0..1000 {
        deep = json!([deep]);
    }
    assert!(matches!(render("{{ messages }}", &user(deep)), Err(TextError::ChatInput { .. })));
}
