use weir_document::Path;

use super::*;

fn object(json: &str) -> Document {
    Document::json(json.to_owned().into())
}

fn of_type() -> Question {
    Question::Text(Path::parse("spec.type").unwrap())
}

fn listens() -> Question {
    Question::Annotation("listen".into())
}

fn says(text: &str) -> Reply<'static> {
    Reply::Text(text.to_owned().into())
}

fn whole(asked: &[(Question, Reply<'static>)]) -> Lesson {
    Lesson::test(true, asked.to_vec())
}

fn agreed(tree: &mut Tree, asked: &[(Question, Reply<'static>)], keep: bool) {
    for _ in 0..AGREED {
        tree.learn(whole(asked), keep).unwrap();
    }
}

const PLAIN: &str = r#"{"spec":{"type":"ClusterIP"}}"#;
const LISTENS: &str = r#"{"metadata":{"annotations":{"listen":"a"}},"spec":{"type":"NodePort"}}"#;

#[test]
fn an_outcome_is_foreseen_once_enough_calls_agree() {
    let mut tree = Tree::default();
    for _ in 0..AGREED {
        assert_eq!(tree.foresee(&object(PLAIN)), Foreseen::Unknown);
        tree.learn(whole(&[(listens(), Reply::Nothing)]), true).unwrap();
    }
    assert_eq!(tree.foresee(&object(PLAIN)), Foreseen::Keep);
    assert_eq!(tree.foresee(&object(LISTENS)), Foreseen::Unknown, "it answers otherwise");
}

#[test]
fn the_replies_lead_to_different_questions_and_outcomes() {
    let mut tree = Tree::default();
    agreed(&mut tree, &[(of_type(), says("ClusterIP"))], true);
    agreed(&mut tree, &[(of_type(), says("NodePort")), (listens(), says("a"))], false);
    assert_eq!(tree.foresee(&object(PLAIN)), Foreseen::Keep);
    assert_eq!(tree.foresee(&object(LISTENS)), Foreseen::Hide);
    assert_eq!(tree.foresee(&object(r#"{"spec":{"type":"NodePort"}}"#)), Foreseen::Unknown);
}

#[test]
fn a_call_that_acts_is_made_again_and_teaches_no_more() {
    let mut tree = Tree::default();
    tree.learn(Lesson::test(false, vec![(listens(), says("a"))]), true).unwrap();
    assert_eq!(tree.foresee(&object(LISTENS)), Foreseen::Nothing);
    assert_eq!(tree.foresee(&object(PLAIN)), Foreseen::Unknown);
}

#[test]
fn another_outcome_on_the_same_replies_is_a_contradiction() {
    let asked = [(listens(), Reply::Nothing)];
    for contradiction in [
        (whole(&asked), false),
        (Lesson::test(false, asked.to_vec()), true),
        (whole(&[]), true),
        (whole(&[(of_type(), says("ClusterIP"))]), true),
        (whole(&[(listens(), Reply::Nothing), (of_type(), Reply::Nothing)]), true),
    ] {
        let mut tree = Tree::default();
        tree.learn(whole(&asked), true).unwrap();
        assert_eq!(tree.learn(contradiction.0, contradiction.1), Err(Contradiction));
    }
}

#[test]
fn nothing_is_foreseen_for_a_module_that_is_distrusted() {
    let foresight = Foresight::default();
    for _ in 0..AGREED {
        foresight.learn(whole(&[]), true).unwrap();
    }
    assert_eq!(foresight.tree().foresee(&object(PLAIN)), Foreseen::Keep);
    foresight.distrust();
    foresight.learn(whole(&[]), false).unwrap();
    assert_eq!(foresight.tree().foresee(&object(PLAIN)), Foreseen::Nothing);
}

#[test]
fn bad_bytes_are_left_to_the_call() {
    let mut tree = Tree::default();
    agreed(&mut tree, &[(of_type(), Reply::Nothing)], true);
    assert_eq!(tree.foresee(&object("{}")), Foreseen::Keep);
    assert_eq!(tree.foresee(&object(r#"{"spec":{"type":"#)), Foreseen::Nothing);
    assert_eq!(tree.foresee(&object(r#"{"spec":{},"spec":{}}"#)), Foreseen::Nothing, "a key twice on the way");
}

#[test]
fn a_question_with_countless_replies_stays_bounded() {
    let mut tree = Tree::default();
    for n in 0..2 * NODES {
        let asked = [(Question::Name, says(&n.to_string()))];
        tree.learn(whole(&asked), true).unwrap();
    }
    agreed(&mut tree, &[(Question::Name, Reply::Nothing)], true);
    let Node::Asks(asks) = &tree.root else { panic!("{tree:?}") };
    assert_eq!(asks.replies.len(), REPLIES + 1, "that there is nothing has its place");
    assert_eq!(tree.foresee(&object(r#"{"metadata":{"name":"other"}}"#)), Foreseen::Nothing);
}

#[test]
fn questions_with_a_few_replies_each_stay_bounded_together() {
    let mut tree = Tree::default();
    for n in 0..REPLIES.pow(3) {
        let asked: Vec<_> = (0..3_u32)
            .map(|place| {
                (Question::Label(place.to_string().into()), says(&(n / REPLIES.pow(place) % REPLIES).to_string()))
            })
            .collect();
        let label = |(place, (_, reply)): (usize, &(Question, Reply<'_>))| match reply {
            Reply::Text(text) => format!(r#""{place}":"{text}""#),
            other => panic!("{other:?}"),
        };
        let labels: Vec<_> = asked.iter().enumerate().map(label).collect();
        let object = object(&format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")));
        if tree.foresee(&object) == Foreseen::Unknown {
            tree.learn(whole(&asked), true).unwrap();
        }
    }
    assert!(tree.nodes <= NODES + 4, "{}", tree.nodes);
}

#[test]
fn which_of_several_texts_it_is_has_few_replies() {
    let one_of = Question::OneOf(Path::parse("metadata.name").unwrap(), Box::new(["a".to_owned(), "b".to_owned()]));
    for (json, reply) in [
        (r#"{"metadata":{"name":"b"}}"#, Reply::Position(1)),
        (r#"{"metadata":{"name":"c"}}"#, Reply::Nothing),
        ("{}", Reply::Nothing),
    ] {
        assert_eq!(one_of.ask(&object(json)).unwrap(), reply);
    }
}
