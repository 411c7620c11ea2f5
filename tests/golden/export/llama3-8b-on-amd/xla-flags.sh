# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile zyphra-ibm-mi300x.
# Settings were checked against jaxlib 0.10.2.
# Device mesh, outermost axis first (plan: parallelism.order): data 128

# The plan implies no flag; XLA's defaults hold.
