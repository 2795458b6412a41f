"""How a checkpoint of any format is converted: rules, both sides, the loop and the proof."""
