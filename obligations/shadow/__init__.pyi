from .bf16 import round_bf16 as round_bf16
from .clauses import (
    Leaf as Leaf,
    Path as Path,
    cotangent_of as cotangent_of,
    leaves as leaves,
    node_magnitude as node_magnitude,
    node_value as node_value,
    read_cotangent as read_cotangent,
)
from .evaluate import (
    STEP as STEP,
    Equation as Equation,
    Evaluator as Evaluator,
    NotEvaluable as NotEvaluable,
    gradient_node as gradient_node,
    relative_error as relative_error,
    vjp as vjp,
)
from .forward import (
    Case as Case,
    axes as axes,
    output as output,
    parameter_gradient as parameter_gradient,
    run as run,
    site_gradient as site_gradient,
    site_parameters as site_parameters,
)
from .propositions import Predicate as Predicate, Propositions as Propositions, Values as Values
from .sampling import (
    NetPoint as NetPoint,
    Point as Point,
    block_parameters as block_parameters,
    margins as margins,
    mask_length as mask_length,
    rng_for as rng_for,
    sample as sample,
    sample_net as sample_net,
    tensor as tensor,
    type_shape as type_shape,
)
from .steps import backward_step as backward_step, gradient_nodes as gradient_nodes
from .values import (
    Record as Record,
    WholeNet as WholeNet,
    case_of as case_of,
    net_values as net_values,
    random_mask as random_mask,
    sizes_of as sizes_of,
)
