//! A group's owners on one line.

use crate::report::visibility::objects::Work;

/// Branches of a tree, and trees, that are shown.
const SHOWN: usize = 4;

/// The trees that a group was made of, each from its top down to what makes the pods:
/// `CronJob/night -> Job/night-1`. Branches follow after a comma, trees that an annotation
/// joined after a `+`.
pub fn shape(work: &Work) -> String {
    let chains = longest(&work.chains);
    let mut trees: Vec<(&str, Vec<&[String]>)> = Vec::new();
    for chain in chains {
        let Some(top) = chain.first() else { continue };
        match trees.iter_mut().find(|(known, _)| known == top) {
            Some((_, branches)) => branches.push(chain),
            None => trees.push((top, vec![chain])),
        }
    }
    if trees.is_empty() {
        return format!("{}/{}", work.root.kind, work.root.name);
    }
    cut(trees.iter().map(|(_, branches)| tree(branches)).collect(), " + ")
}

/// Chains that are not a part of another.
fn longest(chains: &[Vec<String>]) -> Vec<&[String]> {
    let is_part = |chain: &[String], of: &[String]| {
        of.len() > chain.len() && of.windows(chain.len()).any(|part| part == chain)
    };
    let chains = chains.iter().filter(|chain| !chain.is_empty());
    let all: Vec<&[String]> = chains.map(Vec::as_slice).collect();
    all.iter().copied().filter(|chain| !all.iter().any(|other| is_part(chain, other))).collect()
}

/// The first branch whole, of the others what differs from the one before.
fn tree(branches: &[&[String]]) -> String {
    let before = std::iter::once(&[][..]).chain(branches.iter().copied());
    let shown = branches.iter().zip(before).map(|(branch, before)| {
        let same = branch.iter().zip(before).take_while(|(a, b)| a == b).count();
        branch.get(same..).unwrap_or_default().join(" -> ")
    });
    cut(shown.collect(), ", ")
}

fn cut(mut parts: Vec<String>, between: &str) -> String {
    let more = parts.len().saturating_sub(SHOWN);
    if more > 0 {
        parts.truncate(SHOWN);
        parts.push(format!("{more} more"));
    }
    parts.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::visibility::objects::Root;
    use rstest::rstest;

    fn shape_of(chains: &[&str]) -> String {
        let links = |chain: &&str| chain.split(' ').map(str::to_owned).collect();
        let chains = chains.iter().map(links).collect();
        let root = Root { kind: "Pod".to_owned(), name: "p".to_owned(), ..Root::default() };
        shape(&Work { root, chains, ..Work::default() })
    }

    #[rstest]
    #[case::nothing_known(&[], "Pod/p")]
    #[case::pod(&["Pod/p"], "Pod/p")]
    #[case::from_the_root_down(&["CronJob/n Job/n-1"], "CronJob/n -> Job/n-1")]
    #[case::branches(&["RayJob/r RayCluster/c", "RayJob/r Job/r"], "RayJob/r -> RayCluster/c, Job/r")]
    #[case::deep_branches(&["A/a B/b C/c", "A/a B/b D/d"], "A/a -> B/b -> C/c, D/d")]
    #[case::driver_and_executors(&["Spark/s", "Spark/s Pod/driver"], "Spark/s -> Pod/driver")]
    #[case::known_from_the_record(&["Job/n-1", "CronJob/n Job/n-1"], "CronJob/n -> Job/n-1")]
    #[case::joined(&["Job/a", "Deployment/b ReplicaSet/c"], "Job/a + Deployment/b -> ReplicaSet/c")]
    #[case::many(&["Pod/a", "Pod/b", "Pod/c", "Pod/d", "Pod/e", "Pod/f"], "Pod/a + Pod/b + Pod/c + Pod/d + 2 more")]
    fn owners_read_from_the_top_down(#[case] chains: &[&str], #[case] shown: &str) {
        assert_eq!(shape_of(chains), shown);
    }
}
