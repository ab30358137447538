"""Tools: functions that a model may call. What is declared about one, and how a call of it is made.

:mod:`~adk_worker.tools.declaring` is what authors write, :mod:`~adk_worker.tools.signature` what the model is shown of
it, :mod:`~adk_worker.tools.context` what the function is told about its call, and :mod:`~adk_worker.tools.probe` asks
the far side whether a call happened.

:mod:`~adk_worker.tools.invocation` makes one call, by way of :mod:`~adk_worker.tools.bounded`, and
:mod:`~adk_worker.tools.endings` says what is known once it has ended.
"""
